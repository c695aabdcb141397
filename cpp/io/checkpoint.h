// A checkpoint folder: config.json text and the tensors of one or more safetensors files, by name
// without the backbone prefix. Shards that hold only tensors nobody asks for (vision, mtp) are
// never opened.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"

namespace openjev {

struct HostTensor {
  std::string name;  // full name in the file
  std::filesystem::path file;
  DType dtype = DType::kF32;  // F32 or BF16; any other is refused when asked for
  std::vector<std::int64_t> shape;
  std::span<const std::byte>
      bytes;  // in the mapped file: valid while the Checkpoint is; of any alignment
};

class Checkpoint {
 public:
  // Reads model.safetensors, or the shards of model.safetensors.index.json when there is no such
  // file. Throws kBadCheckpoint: no config.json, no weights, an index that names a file outside the
  // folder, a tensor twice, ...
  explicit Checkpoint(const std::filesystem::path& folder);
  ~Checkpoint();
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;

  const std::filesystem::path& folder() const;
  const std::string& config_text() const;

  // The first of "model.language_model.", "model.", "language_model." and "" under which
  // embed_tokens.weight exists.
  const std::string& prefix() const;

  // The backbone tensor `prefix() + name`. Throws kBadCheckpoint when it is missing, has another
  // shape, or a dtype other than F32 and BF16. May be called from several threads.
  HostTensor tensor(const std::string& name, std::span<const std::int64_t> shape) const;

  // Gives the pages of a tensor back to the system; they are read again when touched.
  void release(const HostTensor& tensor) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace openjev

// JSON files of a checkpoint (config.json, the shard index, the manifests): strict parsing and
// typed access to fields. Nothing is coerced, and every refusal is kBadCheckpoint with file, field,
// found and allowed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace openjev {

using Json = nlohmann::json;

// The whole file, at most 32 MiB of it.
std::string read_text_file(const std::filesystem::path& file);

// Refuses a name given twice in one object and nesting deeper than 64 besides what JSON itself
// refuses.
Json parse_json(std::string_view text, const std::filesystem::path& file);

// A value as a message shows it: scalars as written, containers by their size.
std::string shown(const Json& value);

// The fields of one object. A field that is null counts as absent.
class Fields {
 public:
  // `path` is how the object is called in messages: "" for the file's root, "readout.", ...
  // `object` must outlive this.
  Fields(const Json& object, std::filesystem::path file, std::string path = "");

  const std::filesystem::path& file() const { return file_; }

  const Json* find(const std::string& name) const;  // nullptr: absent
  const Json& require(const std::string& name, const std::string& allowed) const;

  std::int64_t integer(const std::string& name, std::int64_t min, std::int64_t max) const;
  double positive(const std::string& name, double max) const;  // 0 < value <= max
  std::string text(const std::string& name) const;
  std::string text_or(const std::string& name, const std::string& otherwise) const;
  bool boolean_or(const std::string& name, bool otherwise) const;
  const Json& array(const std::string& name) const;
  Fields object(const std::string& name) const;

  [[noreturn]] void refuse(const std::string& name, const std::string& found,
                           const std::string& allowed) const;

 private:
  const Json& object_;
  std::filesystem::path file_;
  std::string path_;
};

// Whether `value` is an integer from min to max: for elements of lists, which have no field name.
bool integer_in(const Json& value, std::int64_t min, std::int64_t max);

}  // namespace openjev

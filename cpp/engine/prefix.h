// What a pass over a multiple of 64 tokens left behind, so that sequences may continue it:
// convolution tails and recurrent states of the linear layers, keys and values of the full ones.
// Read-only once made.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "backend/backend.h"
#include "model/decoder.h"

namespace openjev {

class Engine;

class Prefix {
 public:
  Prefix(const Engine* engine, std::unique_ptr<Buffer> buffer, PrefixViews views,
         std::int32_t length)
      : engine_(engine), buffer_(std::move(buffer)), views_(std::move(views)), length_(length) {}

  const Engine* engine() const { return engine_; }
  const PrefixViews& views() const { return views_; }
  std::int32_t length() const { return length_; }  // tokens

 private:
  const Engine* engine_;
  std::unique_ptr<Buffer> buffer_;
  PrefixViews views_;
  std::int32_t length_;
};

}  // namespace openjev

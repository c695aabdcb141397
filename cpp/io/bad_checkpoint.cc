#include "io/bad_checkpoint.h"

#include <cstddef>
#include <nlohmann/json.hpp>

namespace openjev {

std::string text_label(std::string_view text) {
  constexpr std::size_t kShownBytes = 120;
  const nlohmann::json head = std::string(text.substr(0, kShownBytes));
  return head.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) +
         (text.size() > kShownBytes ? "..." : "");
}

}  // namespace openjev

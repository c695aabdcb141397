#include "io/json.h"

#include <fstream>
#include <sstream>
#include <system_error>
#include <unordered_set>
#include <utility>
#include <vector>

#include "io/bad_checkpoint.h"

namespace openjev {
namespace {

constexpr std::uintmax_t kMaxTextBytes = std::uintmax_t{32} << 20;
constexpr int kMaxDepth = 64;

// Follows the parser through the document and refuses what the grammar alone lets through.
class StrictWalk {
 public:
  explicit StrictWalk(const std::filesystem::path& file) : file_(file) {}

  bool operator()(int depth, Json::parse_event_t event, Json& value) {
    switch (event) {
      case Json::parse_event_t::object_start:
      case Json::parse_event_t::array_start:
        if (depth >= kMaxDepth) {
          bad_checkpoint(file_, "JSON", "nesting deeper than " + std::to_string(kMaxDepth),
                         "at most " + std::to_string(kMaxDepth) + " levels");
        }
        if (event == Json::parse_event_t::object_start) names_.emplace_back();
        break;
      case Json::parse_event_t::key:
        if (!names_.back().insert(value.get<std::string>()).second) {
          bad_checkpoint(file_, "field " + text_label(value.get_ref<const std::string&>()),
                         "the name twice in one object", "each name once");
        }
        break;
      case Json::parse_event_t::object_end:
        names_.pop_back();
        break;
      default:
        break;
    }
    return true;
  }

 private:
  const std::filesystem::path& file_;
  std::vector<std::unordered_set<std::string>> names_;
};

}  // namespace

std::string read_text_file(const std::filesystem::path& file) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) {
    bad_checkpoint(file, "file", error ? error.message() : "no regular file",
                   "a readable regular file");
  }
  const std::uintmax_t size = std::filesystem::file_size(file, error);
  if (error || size > kMaxTextBytes) {
    bad_checkpoint(file, "file", error ? error.message() : std::to_string(size) + " bytes",
                   "at most " + std::to_string(kMaxTextBytes) + " bytes");
  }
  std::ifstream in(file, std::ios::binary);
  std::string text(static_cast<std::size_t>(size), '\0');
  if (!in.read(text.data(), static_cast<std::streamsize>(text.size()))) {
    bad_checkpoint(file, "file", "that reading it fails", "a readable regular file");
  }
  return text;
}

Json parse_json(std::string_view text, const std::filesystem::path& file) {
  // The parser takes a zero byte for the end of its input; what follows one must not be skipped
  // silently.
  if (const std::size_t zero = text.find('\0'); zero != std::string_view::npos) {
    bad_checkpoint(file, "JSON", "a zero byte at " + std::to_string(zero), "JSON text");
  }
  try {
    // A std::function copies its target, so it gets a reference to the walk and no copy.
    StrictWalk walk(file);
    return Json::parse(text.begin(), text.end(),
                       [&walk](int depth, Json::parse_event_t event, Json& value) {
                         return walk(depth, event, value);
                       });
  } catch (const Json::exception& error) {
    bad_checkpoint(file, "JSON", text_label(error.what()), "JSON text in UTF-8");
  }
}

std::string shown(const Json& value) {
  if (value.is_object()) return "an object of " + std::to_string(value.size()) + " fields";
  if (value.is_array()) return "a list of " + std::to_string(value.size()) + " elements";
  if (value.is_string()) return text_label(value.get_ref<const std::string&>());
  return value.dump();
}

bool integer_in(const Json& value, std::int64_t min, std::int64_t max) {
  if (value.is_number_unsigned()) {
    const auto found = value.get<std::uint64_t>();
    return found <= static_cast<std::uint64_t>(INT64_MAX) &&
           static_cast<std::int64_t>(found) >= min && static_cast<std::int64_t>(found) <= max;
  }
  if (!value.is_number_integer()) return false;
  const auto found = value.get<std::int64_t>();
  return found >= min && found <= max;
}

Fields::Fields(const Json& object, std::filesystem::path file, std::string path)
    : object_(object), file_(std::move(file)), path_(std::move(path)) {
  if (!object_.is_object()) {
    const std::string where = path_.empty() ? "JSON" : path_.substr(0, path_.size() - 1);
    bad_checkpoint(file_, where, shown(object_), "an object");
  }
}

void Fields::refuse(const std::string& name, const std::string& found,
                    const std::string& allowed) const {
  bad_checkpoint(file_, path_ + name, found, allowed);
}

const Json* Fields::find(const std::string& name) const {
  const auto at = object_.find(name);
  return at == object_.end() || at->is_null() ? nullptr : &*at;
}

const Json& Fields::require(const std::string& name, const std::string& allowed) const {
  const Json* value = find(name);
  if (value == nullptr) refuse(name, object_.contains(name) ? "null" : "no such field", allowed);
  return *value;
}

std::int64_t Fields::integer(const std::string& name, std::int64_t min, std::int64_t max) const {
  const std::string allowed =
      "an integer from " + std::to_string(min) + " to " + std::to_string(max);
  const Json& value = require(name, allowed);
  if (!integer_in(value, min, max)) refuse(name, shown(value), allowed);
  return value.get<std::int64_t>();
}

double Fields::positive(const std::string& name, double max) const {
  std::ostringstream allowed;
  allowed << "a number greater than 0 and at most " << max;
  const Json& value = require(name, allowed.str());
  if (!value.is_number() || !(value.get<double>() > 0) || value.get<double>() > max) {
    refuse(name, shown(value), allowed.str());
  }
  return value.get<double>();
}

std::string Fields::text(const std::string& name) const {
  const Json& value = require(name, "a string");
  if (!value.is_string()) refuse(name, shown(value), "a string");
  return value.get<std::string>();
}

std::string Fields::text_or(const std::string& name, const std::string& otherwise) const {
  return find(name) == nullptr ? otherwise : text(name);
}

bool Fields::boolean_or(const std::string& name, bool otherwise) const {
  const Json* value = find(name);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) refuse(name, shown(*value), "true or false");
  return value->get<bool>();
}

const Json& Fields::array(const std::string& name) const {
  const Json& value = require(name, "a list");
  if (!value.is_array()) refuse(name, shown(value), "a list");
  return value;
}

Fields Fields::object(const std::string& name) const {
  return Fields(require(name, "an object"), file_, path_ + name + ".");
}

}  // namespace openjev

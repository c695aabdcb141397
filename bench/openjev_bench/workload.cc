#include "openjev_bench/workload.h"

#include <algorithm>
#include <array>

#include "core/random.h"
#include "io/json.h"

namespace openjev::bench {
namespace {

constexpr std::int64_t kMostTokens = 262144;
constexpr const char* kBlanks = " \t\r\n,";

std::vector<std::int32_t> lengths_in(const Json& array, const std::string& file) {
  std::vector<std::int32_t> out;
  for (const Json& value : array) {
    if (!integer_in(value, 1, kMostTokens))
      fail(ErrorKind::kBadRequest, file, ": length ", out.size(), ": found ", shown(value),
           ", allowed are integers from 1 to ", kMostTokens);
    out.push_back(value.get<std::int32_t>());
  }
  return out;
}

std::vector<std::int32_t> lengths_in_json(const std::string& text, const std::string& file) {
  const Json json = parse_json(text, file);
  return lengths_in(json.is_array() ? json : Fields(json, file).array("tokens"), file);
}

// Each word as JSON, so that numbers are checked in one place only.
std::vector<std::int32_t> lengths_in_words(const std::string& text, const std::string& file) {
  Json list = Json::array();
  for (auto at = text.find_first_not_of(kBlanks); at != std::string::npos;) {
    const auto end = std::min(text.find_first_of(kBlanks, at), text.size());
    const std::string word = text.substr(at, end - at);
    const Json value = Json::parse(word, nullptr, false);
    list.push_back(value.is_discarded() ? Json(word) : value);
    at = text.find_first_not_of(kBlanks, end);
  }
  return lengths_in(list, file);
}

}  // namespace

std::vector<std::int32_t> random_tokens(std::int32_t length, std::int32_t vocab_size,
                                        std::uint64_t seed, std::uint64_t stream) {
  const std::uint64_t prompt = hash_of(seed, stream);
  std::vector<std::int32_t> out(static_cast<std::size_t>(length));
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<std::int32_t>(hash_of(prompt, i) % static_cast<std::uint64_t>(vocab_size));
  return out;
}

BatchPlan plan_of_prompt(std::int32_t length, std::int32_t vocab_size, std::uint64_t seed) {
  const std::vector<std::int32_t> tokens = random_tokens(length, vocab_size, seed, 0);
  const std::array<std::int64_t, 2> offsets = {0, length};
  PlanOptions options;
  options.vocab_size = vocab_size;
  return BatchPlan(tokens, offsets, options);
}

std::int32_t rows_of_prompt(std::int32_t length, std::int32_t vocab_size, Backend& backend) {
  const BatchPlan plan = plan_of_prompt(length, vocab_size, 0);
  const std::int32_t rows = backend.upload(plan.view(), true).rows;
  backend.synchronize();  // the plan's arrays may be read until then
  return rows;
}

std::vector<std::int32_t> read_lengths(const std::string& file) {
  const std::string text = read_text_file(file);
  const auto first = text.find_first_not_of(kBlanks);
  const bool json = first != std::string::npos && (text[first] == '{' || text[first] == '[');
  std::vector<std::int32_t> out = json ? lengths_in_json(text, file) : lengths_in_words(text, file);
  if (out.empty()) fail(ErrorKind::kBadRequest, file, ": found no length, allowed are one or more");
  return out;
}

std::vector<std::int32_t> distinct(std::vector<std::int32_t> lengths) {
  std::sort(lengths.begin(), lengths.end());
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  return lengths;
}

}  // namespace openjev::bench

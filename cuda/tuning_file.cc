#include "cuda/tuning_file.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <system_error>

namespace openjev::cuda {
namespace {

constexpr std::string_view kFormat = "openjev-matmul-tuning 4";
constexpr std::uintmax_t kMaxBytes = 4u << 20;
constexpr std::int64_t kMaxSize = std::int64_t{1} << 31;
constexpr int kMaxParts = 1024;

// The fields of one line, read in order. A field that is not exactly as written by us fails the
// whole line.
class Line {
 public:
  explicit Line(std::string_view text) : rest_(text) {}

  bool word(std::string_view expected) { return next() == expected; }

  template <class T>
  bool number(T& value, T min, T max, int base = 10) {
    const std::string_view field = next();
    const char* end = field.data() + field.size();
    const auto [stop, error] = std::from_chars(field.data(), end, value, base);
    return !field.empty() && error == std::errc{} && stop == end && value >= min && value <= max;
  }

  bool time(double& value) {
    const std::string_view field = next();
    const char* end = field.data() + field.size();
    const auto [stop, error] = std::from_chars(field.data(), end, value);
    return !field.empty() && error == std::errc{} && stop == end && std::isfinite(value) &&
           value >= 0;
  }

  bool done() const { return finished_; }

 private:
  std::string_view next() {
    if (finished_) return {};
    const auto space = rest_.find(' ');
    const std::string_view field = rest_.substr(0, space);
    finished_ = space == std::string_view::npos;
    rest_ = finished_ ? std::string_view{} : rest_.substr(space + 1);
    return field;
  }

  std::string_view rest_;
  bool finished_ = false;
};

bool parse_shape(Line line, TunedShape& shape) {
  int verified = 0;
  const bool read = line.word("shape") && line.number<std::int64_t>(shape.n, 1, kMaxSize) &&
                    line.number<std::int64_t>(shape.k, 1, kMaxSize) &&
                    line.number<int>(shape.parts, 0, kMaxParts) &&
                    line.number<int>(verified, 0, 1) &&
                    line.number<std::int64_t>(shape.rows, 1, kMaxSize);
  if (!read) return false;
  shape.verified = verified == 1;
  for (std::int32_t& bytes : shape.alignment) {
    if (!line.number<std::int32_t>(bytes, 2, 16) || (bytes & (bytes - 1)) != 0) return false;
  }
  return line.done();
}

bool parse_bucket(Line line, TunedBucket& bucket) {
  const bool read = line.word("bucket") && line.number<std::int64_t>(bucket.rows, 1, kMaxSize) &&
                    line.time(bucket.microseconds);
  if (!read) return false;
  for (std::uint64_t& word : bucket.algorithm) {
    if (!line.number<std::uint64_t>(word, 0, UINT64_MAX, 16)) return false;
  }
  return line.done();
}

// Adds what one line says; the reason when it cannot.
std::string add_line(const std::string& text, const TuningKey& key,
                     std::vector<TunedShape>& shapes) {
  if (text.starts_with("shape ")) {
    TunedShape shape;
    if (!parse_shape(Line(text), shape)) return "not a shape";
    if (key.invariant != (shape.parts != 0))
      return "a number of parts that this mode does not have";
    if (!shapes.empty() && shapes.back().buckets.empty()) return "the shape before has no bucket";
    const bool again = std::any_of(shapes.begin(), shapes.end(), [&](const TunedShape& other) {
      return other.n == shape.n && other.k == shape.k;
    });
    if (again) return "a shape that was there before";
    shapes.push_back(shape);
    return {};
  }
  TunedBucket bucket;
  if (!parse_bucket(Line(text), bucket)) return "neither a shape nor a bucket";
  if (shapes.empty()) return "a bucket before any shape";
  std::vector<TunedBucket>& buckets = shapes.back().buckets;
  if (!buckets.empty() && buckets.back().rows >= bucket.rows) return "buckets do not ascend";
  buckets.push_back(bucket);
  return {};
}

// The start of a damaged line, fit to be shown.
std::string quoted(std::string text) {
  constexpr std::size_t kMost = 200;
  text.resize(std::min(text.size(), kMost));
  const auto unfit = [](char c) { return c < ' ' || c > '~'; };
  std::replace_if(text.begin(), text.end(), unfit, '?');
  return "'" + text + "'";
}

// The reason why the text is not a tuning file of this key; empty when `shapes` is what it says.
std::string parse(std::istream& in, const TuningKey& key, std::vector<TunedShape>& shapes) {
  std::string text;
  if (!std::getline(in, text) || text != kFormat)
    return "its first line is not '" + std::string(kFormat) + "'";
  const std::string wanted = "key " + key.text();
  if (!std::getline(in, text) || text != wanted)
    return "it was written for " + quoted(text) + ", this is '" + wanted + "'";
  for (int number = 3; std::getline(in, text); ++number) {
    if (text.starts_with("end ")) {
      Line line(text);
      std::size_t count = 0;
      const bool complete = line.word("end") && line.number<std::size_t>(count, 0, SIZE_MAX) &&
                            line.done() && count == shapes.size() &&
                            (shapes.empty() || !shapes.back().buckets.empty()) && !in.eof() &&
                            in.peek() == std::char_traits<char>::eof();
      return complete ? "" : "line " + std::to_string(number) + ": the end does not fit";
    }
    if (const std::string reason = add_line(text, key, shapes); !reason.empty())
      return "line " + std::to_string(number) + ": " + reason;
  }
  return "it is cut off";
}

void write_number(std::ostream& out, double value) {
  char text[64];
  const auto result = std::to_chars(text, text + sizeof text, value);
  out << std::string_view(text, static_cast<std::size_t>(result.ptr - text));
}

void write_shape(std::ostream& out, const TunedShape& shape) {
  out << "shape " << shape.n << ' ' << shape.k << ' ' << shape.parts << ' '
      << (shape.verified ? 1 : 0) << ' ' << shape.rows;
  for (const std::int32_t bytes : shape.alignment) out << ' ' << bytes;
  out << '\n';
  for (const TunedBucket& bucket : shape.buckets) {
    out << "bucket " << bucket.rows << ' ';
    write_number(out, bucket.microseconds);
    out << std::hex;
    for (const std::uint64_t word : bucket.algorithm) out << ' ' << word;
    out << std::dec << '\n';
  }
}

}  // namespace

std::string TuningKey::text() const {
  std::ostringstream out;
  out << gpu << " | driver " << driver << " | cublasLt " << cublaslt << " | "
      << (invariant ? "invariant" : "fast");
  if (parts > 0) out << " in " << parts << " parts";
  out << " | workspace " << workspace_bytes;
  std::string line = out.str();
  std::replace_if(line.begin(), line.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return line;
}

TuningFile read_tuning_file(const std::filesystem::path& file, const TuningKey& key) {
  std::error_code error;
  if (file.empty() || !std::filesystem::exists(file, error)) return {};
  const std::uintmax_t bytes = std::filesystem::file_size(file, error);
  if (error) return {{}, file.string() + ": " + error.message()};
  if (bytes > kMaxBytes) {
    return {{},
            file.string() + ": " + std::to_string(bytes) + " bytes; at most " +
                std::to_string(kMaxBytes) + " are read"};
  }
  std::ifstream in(file, std::ios::binary);
  if (!in) return {{}, file.string() + ": cannot be opened"};
  TuningFile out;
  if (const std::string reason = parse(in, key, out.shapes); !reason.empty())
    return {{}, file.string() + ": " + reason};
  return out;
}

std::string write_tuning_file(const std::filesystem::path& file, const TuningKey& key,
                              const std::vector<TunedShape>& shapes) {
  std::error_code error;
  if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path(), error);
  if (error) return file.parent_path().string() + ": cannot be made: " + error.message();

  // Another process may write the same file: each has a temporary name of its own.
  std::filesystem::path temporary = file;
  temporary += "." + std::to_string(getpid()) + ".tmp";
  std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
  out << kFormat << "\nkey " << key.text() << '\n';
  for (const TunedShape& shape : shapes) write_shape(out, shape);
  out << "end " << shapes.size() << '\n';
  out.close();
  if (out) std::filesystem::rename(temporary, file, error);
  if (out && !error) return {};
  const std::string reason = error ? error.message() : "writing failed";
  std::filesystem::remove(temporary, error);
  return file.string() + ": cannot be written: " + reason;
}

}  // namespace openjev::cuda

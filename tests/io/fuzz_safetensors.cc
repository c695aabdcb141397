// Feeds mutated safetensors files to the reader: fuzz_safetensors SEED COUNT FOLDER. Each must be
// read, with every tensor inside the data, or be refused with kBadCheckpoint; anything else ends
// the run with exit code 1. Meant for a build with the address and undefined-behaviour sanitizers.
// FOLDER holds one file at a time.
#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "io/safetensors.h"
#include "io/safetensors_header.h"

namespace openjev {
namespace {

constexpr std::size_t kLengthBytes = 8;

struct Image {
  std::uint64_t length = 0;  // what the first eight bytes say
  std::string header, data;

  std::string bytes() const {
    std::string out;
    for (std::size_t i = 0; i < kLengthBytes; ++i) {
      out.push_back(static_cast<char>(static_cast<unsigned char>(length >> (8 * i))));
    }
    return out + header + data;
  }
};

Image valid_image() {
  Image image;
  image.header =
      R"({"__metadata__":{"format":"pt","note":"a \u00e9 b"},)"
      R"("model.embed_tokens.weight":{"dtype":"BF16","shape":[8,4],"data_offsets":[0,64]},)"
      R"("model.norm.weight":{"dtype":"F32","shape":[4],"data_offsets":[64,80]},)"
      R"("empty":{"dtype":"F32","shape":[0,3],"data_offsets":[80,80]},)"
      R"("scalar":{"shape":[],"data_offsets":[80,88],"dtype":"I64"},)"
      R"("packed":{"dtype":"F4","shape":[2,3],"data_offsets":[88,91]}}   )";
  image.length = image.header.size();
  image.data.assign(91, '\x5a');
  return image;
}

class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}

  Image next() {
    Image image = valid_image();
    for (std::uint64_t i = 0, edits = 1 + below(3); i < edits; ++i) edit(image);
    // Half of the edits of the header stay visible to the parser instead of ending at a wrong
    // length.
    if (below(2) == 0) image.length = image.header.size();
    return image;
  }

 private:
  std::uint64_t below(std::uint64_t limit) {
    return limit == 0 ? 0 : std::uniform_int_distribution<std::uint64_t>(0, limit - 1)(random_);
  }

  template <std::size_t n>
  std::string pick(const std::array<const char*, n>& from) {
    return from[below(n)];
  }

  void edit(Image& image) {
    switch (below(6)) {
      case 0:
        return flip_bytes(image.header);
      case 1:
        return change_length(image);
      case 2:
        return replace_number(image.header);
      case 3:
        return truncate(image);
      case 4:
        return move_slice(image.header);
      default:
        return insert_token(image.header);
    }
  }

  void flip_bytes(std::string& text) {
    for (std::uint64_t i = 0, count = 1 + below(4); i < count && !text.empty(); ++i) {
      text[below(text.size())] = static_cast<char>(static_cast<unsigned char>(below(256)));
    }
  }

  void change_length(Image& image) {
    const std::uint64_t all = image.header.size() + image.data.size();
    const std::array<std::uint64_t, 9> lengths = {
        0,
        1,
        below(all + 2),
        image.length + 1,
        image.length - 1,
        all,
        all + 1,
        100'000'001,
        std::numeric_limits<std::uint64_t>::max() - below(9)};
    image.length = lengths[below(lengths.size())];
  }

  void replace_number(std::string& text) {
    std::vector<std::size_t> starts;
    const auto digit = [&](std::size_t i) { return text[i] >= '0' && text[i] <= '9'; };
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (digit(i) && (i == 0 || !digit(i - 1))) starts.push_back(i);
    }
    if (starts.empty()) return;
    const std::size_t begin = starts[below(starts.size())];
    std::size_t end = begin;
    while (end < text.size() && digit(end)) ++end;
    constexpr std::array<const char*, 14> kNumbers = {"0",
                                                      "1",
                                                      "-1",
                                                      "1.5",
                                                      "1e999",
                                                      "1e2",
                                                      "64",
                                                      "80",
                                                      "9223372036854775807",
                                                      "9223372036854775808",
                                                      "18446744073709551615",
                                                      "18446744073709551616",
                                                      "4294967296",
                                                      "99999999999999999999999999"};
    text.replace(begin, end - begin, below(3) == 0 ? std::to_string(below(100)) : pick(kNumbers));
  }

  void truncate(Image& image) {
    std::string& text = below(2) == 0 ? image.header : image.data;
    if (below(4) == 0) {
      text.append(below(20), ' ');
    } else {
      text.resize(below(text.size() + 1));
    }
  }

  void move_slice(std::string& text) {
    const std::size_t from = below(text.size() + 1), size = below(text.size() - from + 1);
    const std::string slice = text.substr(from, size);
    if (below(2) == 0) text.erase(from, size);
    if (below(3) != 0) text.insert(below(text.size() + 1), slice);
  }

  void insert_token(std::string& text) {
    constexpr std::array<const char*, 17> kTokens = {"{",
                                                     "}",
                                                     "[",
                                                     "]",
                                                     ",",
                                                     ":",
                                                     "\"",
                                                     "null",
                                                     "true",
                                                     "\"dtype\":\"U8\",",
                                                     "\"shape\":[],",
                                                     "\"a\":{},",
                                                     "\\u0000",
                                                     "\xff",
                                                     "\"data_offsets\":[0,0],",
                                                     "\"__metadata__\":{},",
                                                     " "};
    std::string token = pick(kTokens);
    if (below(20) == 0) token = std::string(5000, below(2) == 0 ? '[' : '{');
    text.insert(below(text.size() + 1), token);
  }

  std::mt19937_64 random_;
};

// "" when `read` returned, else the message of its refusal. Every other error passes through.
std::string refusal(const std::function<void()>& read) {
  try {
    read();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kBadCheckpoint) throw;
    return error.what();
  }
  return "";
}

void read_file(const std::filesystem::path& path, const Image& image) {
  const SafetensorsFile file(path);
  std::size_t total = 0;
  for (const auto& [name, info] : file.tensors()) {
    check(info.begin >= kLengthBytes + image.length, name, " begins in the header");
    std::size_t last_byte = 0;
    for (const std::byte byte : file.bytes(info)) last_byte = std::to_integer<std::size_t>(byte);
    check(last_byte < 256, "a byte of ", name);
    total += info.end - info.begin;
    file.release(info);
  }
  check(total == std::filesystem::file_size(path) - kLengthBytes - image.length,
        "tensors do not cover the data");
}

// The same header in a heap block of its exact size, so that a sanitizer sees a read beyond its
// end.
void read_header(const std::filesystem::path& path, const Image& image) {
  const std::string all = image.bytes();
  const std::vector<char> exact(
      all.begin() + kLengthBytes,
      all.begin() + static_cast<std::ptrdiff_t>(kLengthBytes + image.length));
  parse_safetensors_header(std::string_view(exact.data(), exact.size()),
                           kLengthBytes + exact.size(), all.size(), path);
}

int run(std::uint64_t seed, std::uint64_t count, const std::filesystem::path& folder) {
  Mutator mutator(seed);
  const std::filesystem::path path = folder / "mutated.safetensors";
  std::uint64_t refused = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const Image image = mutator.next();
    const std::string bytes = image.bytes();
    std::filesystem::remove(
        path);  // some file systems wait for the disk when a file is overwritten
    std::ofstream(path, std::ios::binary) << bytes;
    const std::string message = refusal([&] { read_file(path, image); });
    refused += message.empty() ? 0 : 1;
    check(message.empty() || message.starts_with(path.string() + ": "),
          "file not named: ", message);
    if (bytes.size() >= kLengthBytes && image.length <= bytes.size() - kLengthBytes) {
      const std::string again = refusal([&] { read_header(path, image); });
      check(again == message, "file: ", message, "\nheader alone: ", again);
    }
  }
  std::filesystem::remove(path);
  std::cout << count << " mutated files: " << count - refused << " read, " << refused
            << " refused\n";
  return 0;
}

}  // namespace
}  // namespace openjev

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: fuzz_safetensors SEED COUNT FOLDER\n";
    return 2;
  }
  try {
    return openjev::run(std::stoull(argv[1]), std::stoull(argv[2]), argv[3]);
  } catch (const std::exception& error) {
    std::cerr << "fuzz_safetensors: " << error.what() << "\n";
    return 1;
  }
}

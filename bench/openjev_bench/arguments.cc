#include "openjev_bench/arguments.h"

#include <algorithm>
#include <charconv>
#include <iterator>

#include "model/shapes.h"

namespace openjev::bench {
namespace {

constexpr std::int64_t kMostTokens = 262144;
constexpr unsigned kForward = static_cast<unsigned>(Command::kForward);
constexpr unsigned kKernels = static_cast<unsigned>(Command::kKernels);
constexpr unsigned kMatmul = static_cast<unsigned>(Command::kMatmul);
constexpr unsigned kMemory = static_cast<unsigned>(Command::kMemory);
constexpr unsigned kAll = kForward | kKernels | kMatmul | kMemory;

std::string listed(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

// The words after an option, up to the next option.
struct Values {
  std::string option;
  std::vector<std::string> words;

  void none() const {
    if (!words.empty()) throw UsageError(option + ": found " + words.front() + ", takes no value");
  }
  const std::string& one() const {
    if (words.size() != 1)
      throw UsageError(option + ": found " + std::to_string(words.size()) +
                       " values, allowed is one");
    return words.front();
  }
  const std::string& one_of(const std::vector<std::string>& allowed) const {
    const std::string& word = one();
    if (std::find(allowed.begin(), allowed.end(), word) == allowed.end())
      throw UsageError(option + ": found " + word + ", allowed are " + listed(allowed));
    return word;
  }
  template <class T>
  T number(const std::string& word, T min, T max) const {
    T value{};
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc{} || end != word.data() + word.size() || value < min || value > max)
      throw UsageError(option + ": found " + word + ", allowed are integers from " +
                       std::to_string(min) + " to " + std::to_string(max));
    return value;
  }
  template <class T>
  T integer(T min, T max) const {
    return number(one(), min, max);
  }
  std::vector<std::int32_t> lengths() const {
    if (words.empty()) throw UsageError(option + ": found no value, allowed are one or more");
    std::vector<std::int32_t> out;
    for (const std::string& word : words) out.push_back(number<std::int32_t>(word, 1, kMostTokens));
    return out;
  }
};

struct Option {
  const char* name;
  unsigned commands;  // that have it
  const char* value;  // as the help shows it
  const char* help;
  void (*read)(Arguments&, const Values&);
};

constexpr std::int32_t kMostLayers = 1024, kMostCount = 1'000'000;

const Option kOptions[] = {
    {"--shape", kAll, "NAME", "published size: 0.8b, 2b, 4b, 9b, 27b [27b]",
     [](Arguments& a, const Values& v) { a.shape = v.one_of(shape_names()); }},
    {"--layers", kAll, "N", "only the first N layers [0: all]",
     [](Arguments& a, const Values& v) { a.layers = v.integer(0, kMostLayers); }},
    {"--vocab", kForward | kKernels | kMemory, "N", "rows of the embedding [0: the shape's]",
     [](Arguments& a, const Values& v) { a.vocab_size = v.integer(0, kMostCount); }},
    {"--device", kAll, "NAME", "cuda, cpu or auto [cuda]",
     [](Arguments& a, const Values& v) { a.device = v.one_of({"cuda", "cpu", "auto"}); }},
    {"--device-index", kAll, "N", "which of the visible GPUs [0]",
     [](Arguments& a, const Values& v) { a.backend.device_index = v.integer(0, 1023); }},
    {"--threads", kAll, "N", "of the CPU [0: all cores]",
     [](Arguments& a, const Values& v) { a.backend.threads = v.integer(0, 1024); }},
    {"--seed", kAll, "N", "of weights, tokens and activations [0]",
     [](Arguments& a, const Values& v) { a.seed = v.integer<std::uint64_t>(0, INT64_MAX); }},
    {"--tuning-file", kAll, "FILE", "measured matmul algorithms [in the user's cache folder]",
     [](Arguments& a, const Values& v) { a.backend.tuning_file = v.one(); }},
    {"--graph-mode", kAll, "NAME", "bucketed, exact or eager [bucketed]",
     [](Arguments& a, const Values& v) {
       a.backend.graph_mode = v.one_of({"bucketed", "exact", "eager"});
     }},
    {"--graph-entries", kAll, "N", "graphs kept [0: the mode's default]",
     [](Arguments& a, const Values& v) { a.backend.graph_entries = v.integer(0, kMostCount); }},
    {"--matmul-mode", kForward | kMemory, "NAME", "invariant or fast [invariant]",
     [](Arguments& a, const Values& v) {
       a.backend.matmul_mode = v.one_of({"invariant", "fast"});
     }},
    {"--tokens", kAll, "N...", "lengths to measure; memory: the longest counts [107 936 3399]",
     [](Arguments& a, const Values& v) { a.tokens = v.lengths(); }},
    {"--warmup-tokens", kForward | kMatmul | kMemory, "N...",
     "lengths to prepare for besides those measured",
     [](Arguments& a, const Values& v) { a.warmup_tokens = v.lengths(); }},
    {"--lengths", kForward, "FILE", "lengths in order: JSON with a \"tokens\" array, or numbers",
     [](Arguments& a, const Values& v) { a.lengths_file = v.one(); }},
    {"--mode", kForward, "NAME", "sustained (back to back) or gaps (40 ms before each) [sustained]",
     [](Arguments& a, const Values& v) { a.gaps = v.one_of({"sustained", "gaps"}) == "gaps"; }},
    {"--repeats", kForward | kKernels | kMatmul, "N",
     "measurements of each row, passes with --lengths [0: enough]",
     [](Arguments& a, const Values& v) { a.repeats = v.integer(0, kMostCount); }},
    {"--unseen", kForward, "", "also the first pass of lengths that were never run",
     [](Arguments& a, const Values& v) {
       v.none();
       a.unseen = true;
     }},
    {"--cold-mb", kKernels | kMatmul, "N",
     "megabytes of buffers used in turn [kernels: 64, matmul: 256]",
     [](Arguments& a, const Values& v) { a.cold_mb = v.integer<std::int64_t>(0, 65536); }},
    {"--json", kAll, "FILE", "also write the record there",
     [](Arguments& a, const Values& v) { a.json_file = v.one(); }},
    {"--help", kAll, "", "this text",
     [](Arguments& a, const Values& v) {
       v.none();
       a.help = true;
     }},
};

struct CommandName {
  const char* name;
  Command command;
  const char* help;
};

constexpr CommandName kCommands[] = {
    {"forward", Command::kForward,
     "one prompt through the model, beside its matrix products alone"},
    {"kernels", Command::kKernels, "every operator but the matrix products"},
    {"matmul", Command::kMatmul, "every matrix product in both modes: the price of invariance"},
    {"memory", Command::kMemory, "device memory as planned and as measured"},
};

std::vector<std::string> command_names() {
  std::vector<std::string> out;
  for (const CommandName& command : kCommands) out.emplace_back(command.name);
  return out;
}

Command command_of(const std::string& word) {
  for (const CommandName& command : kCommands)
    if (word == command.name) return command.command;
  throw UsageError("command: found " + word + ", allowed are " + listed(command_names()));
}

const Option& option_of(const std::string& word, const std::string& command, unsigned bit) {
  std::vector<std::string> allowed;
  for (const Option& option : kOptions) {
    if ((option.commands & bit) == 0) continue;
    if (word == option.name) return option;
    allowed.emplace_back(option.name);
  }
  throw UsageError(command + ": found " + word + ", allowed are " + listed(allowed));
}

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size() + 1), ' ');
  return text;
}

}  // namespace

Arguments parse_arguments(const std::vector<std::string>& words) {
  Arguments out;
  if (words.empty())
    throw UsageError("command: found none, allowed are " + listed(command_names()) +
                     "; see --help");
  if (words.front() == "--help") {
    out.help = true;
    return out;
  }
  const std::string& command = words.front();
  out.command = command_of(command);
  const auto is_option = [](const std::string& word) { return word.starts_with("--"); };
  for (auto at = words.begin() + 1; at != words.end();) {
    const Option& option = option_of(*at, command, static_cast<unsigned>(out.command));
    const auto end = std::find_if(at + 1, words.end(), is_option);
    option.read(out, {option.name, {at + 1, end}});
    at = end;
  }
  if (out.unseen && !out.lengths_file.empty())
    throw UsageError("--unseen: not together with --lengths; name the lengths by --tokens");
  return out;
}

std::string help_text() {
  constexpr std::size_t kName = 12, kOption = 26;
  std::string out =
      "openjev-bench COMMAND [OPTION...]: measures a model of seeded weights, as Markdown.\n\n";
  for (const CommandName& command : kCommands)
    out += "  " + padded(command.name, kName) + command.help + "\n";
  out += "\nOptions (commands that have them, unless all; default in brackets):\n";
  for (const Option& option : kOptions) {
    std::vector<std::string> owners;
    for (const CommandName& command : kCommands)
      if ((option.commands & static_cast<unsigned>(command.command)) != 0)
        owners.emplace_back(command.name);
    const std::string value = *option.value == '\0' ? "" : std::string(" ") + option.value;
    out += "  " + padded(option.name + value, kOption) + option.help;
    if (owners.size() < std::size(kCommands)) out += " (" + listed(owners) + ")";
    out += "\n";
  }
  return out +
         "\nExamples:\n"
         "  openjev-bench forward --shape 27b --tokens 107 936 3399 --unseen\n"
         "  openjev-bench forward --lengths lengths.json --mode gaps --json record.json\n"
         "  openjev-bench forward --lengths lengths.json --graph-mode exact --graph-entries 64\n"
         "  openjev-bench forward --shape 0.8b --layers 4 --vocab 1000 --tokens 7 --device cpu\n"
         "  openjev-bench kernels --shape 27b --tokens 107 936 3399\n"
         "  openjev-bench matmul --shape 27b --tokens 107 429 2334\n"
         "  openjev-bench memory --shape 27b --tokens 3399\n";
}

ModelConfig model_config(const Arguments& arguments) {
  ModelConfig config = shape_of(arguments.shape, arguments.layers);
  if (arguments.vocab_size > 0) config.vocab_size = arguments.vocab_size;
  return config;
}

}  // namespace openjev::bench

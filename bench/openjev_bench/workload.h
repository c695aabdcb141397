// What is run: token ids, lengths, and how the backend sees them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "plan/batch_plan.h"

namespace openjev::bench {

// `stream` makes prompts of one seed differ.
std::vector<std::int32_t> random_tokens(std::int32_t length, std::int32_t vocab_size,
                                        std::uint64_t seed, std::uint64_t stream);

// The plan of one prompt of random tokens.
BatchPlan plan_of_prompt(std::int32_t length, std::int32_t vocab_size, std::uint64_t seed);

// Rows that the backend gives a prompt of this length: its bucket where plans are rounded up. Must
// not be called between an upload and the pass over it.
std::int32_t rows_of_prompt(std::int32_t length, std::int32_t vocab_size, Backend& backend);

// A JSON object with a "tokens" array, a JSON array, or numbers between blanks or commas. Throws
// openjev::Error naming the file, what was found and what is allowed.
std::vector<std::int32_t> read_lengths(const std::string& file);

// Each length once, ascending.
std::vector<std::int32_t> distinct(std::vector<std::int32_t> lengths);

}  // namespace openjev::bench

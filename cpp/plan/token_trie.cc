#include "plan/token_trie.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"

namespace openjev {
namespace {

// Length of the common beginning of a[0, count) and b[0, count). Equal stretches are compared by
// memcmp.
std::int32_t common_length(const std::int32_t* a, const std::int32_t* b, std::int32_t count) {
  constexpr std::int32_t kStretch = 128;
  std::int32_t done = 0;
  while (count - done >= kStretch &&
         std::memcmp(a + done, b + done, kStretch * sizeof(std::int32_t)) == 0) {
    done += kStretch;
  }
  const std::int32_t rest = done + std::min(count - done, kStretch);
  return static_cast<std::int32_t>(std::mismatch(a + done, a + rest, b + done).first - a);
}

}  // namespace

TokenTrie::TokenTrie(std::span<const std::int32_t> tokens, std::span<const std::int64_t> offsets,
                     std::int32_t vocab_size, bool share)
    : tokens_(tokens), offsets_(offsets), vocab_size_(vocab_size), share_(share) {
  const std::size_t sequences = offsets.size() - 1;
  nodes_.reserve(2 * sequences + 1);
  nodes_.emplace_back();
  next_end_.assign(sequences, -1);
  for (std::size_t i = 0; i < sequences; ++i) {
    insert(static_cast<std::int32_t>(i), offsets[i], offsets[i + 1]);
  }
}

void TokenTrie::insert(std::int32_t sequence, std::int64_t begin, std::int64_t end) {
  std::int32_t parent = 0;
  while (share_) {
    const auto edge = edges_.find({at(parent).branch, token(begin)});
    if (edge == edges_.end()) break;
    const std::int32_t child = edge->second;
    const std::int32_t length = at(child).length;
    const std::int64_t most = std::min<std::int64_t>(length, end - begin);
    const std::int32_t common = common_length(
        tokens_.data() + at(child).begin, tokens_.data() + begin, static_cast<std::int32_t>(most));
    if (common < length) split(child, common);
    begin += common;
    if (begin == end) return end_at(child, sequence);
    parent = child;
  }
  append(parent, sequence, begin, end);
}

void TokenTrie::append(std::int32_t parent, std::int32_t sequence, std::int64_t begin,
                       std::int64_t end) {
  // Only here do tokens enter the trie; all others equal one that did, so each distinct one is
  // checked once.
  check_vocabulary(sequence, begin, end);
  const auto index = static_cast<std::int32_t>(nodes_.size());
  Node& leaf = nodes_.emplace_back();
  leaf.begin = begin;
  leaf.length = static_cast<std::int32_t>(end - begin);
  leaf.branch = branches_++;
  size_ += leaf.length;
  end_at(index, sequence);

  Node& above = at(parent);
  if (above.first_child < 0) {
    above.first_child = index;
  } else {
    at(above.last_child).next_sibling = index;
  }
  above.last_child = index;
  if (share_) edges_.emplace(std::pair{above.branch, token(begin)}, index);
}

// The node keeps the first `length` tokens of its edge and its place among its siblings. The tail
// takes over the rest, the branch key with it: no entry of the children moves.
void TokenTrie::split(std::int32_t index, std::int32_t length) {
  const auto below = static_cast<std::int32_t>(nodes_.size());
  Node tail = at(index);
  tail.begin += length;
  tail.length -= length;
  tail.next_sibling = -1;
  nodes_.push_back(tail);

  Node& head = at(index);
  head.length = length;
  head.first_child = below;
  head.last_child = below;
  head.first_end = -1;
  head.branch = branches_++;
  edges_.emplace(std::pair{head.branch, token(tail.begin)}, below);
}

void TokenTrie::end_at(std::int32_t index, std::int32_t sequence) {
  next_end_[static_cast<std::size_t>(sequence)] = at(index).first_end;
  at(index).first_end = sequence;
}

void TokenTrie::check_vocabulary(std::int32_t sequence, std::int64_t begin,
                                 std::int64_t end) const {
  for (std::int64_t i = begin; i < end; ++i) {
    if (token(i) < 0 || token(i) >= vocab_size_) {
      fail(ErrorKind::kBadRequest, "sequence ", sequence, ", token ",
           i - offsets_[static_cast<std::size_t>(sequence)], ": id ", token(i),
           ", allowed are 0 to ", vocab_size_ - 1);
    }
  }
}

}  // namespace openjev

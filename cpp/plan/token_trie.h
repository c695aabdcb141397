// A radix trie of token sequences: an edge is a range of the caller's tokens, so a shared run of
// thousands of tokens is one node and costs one memory comparison per further sequence.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

namespace openjev {

class TokenTrie {
 public:
  // The edge into a node and what hangs below it. Numbers are indices; -1: none.
  struct Node {
    std::int64_t begin = 0;   // the edge is tokens[begin] ... tokens[begin + length - 1]
    std::int32_t length = 0;  // 0 at the root only
    std::int32_t first_child = -1;
    std::int32_t last_child = -1;
    std::int32_t next_sibling = -1;
    std::int32_t first_end = -1;  // a sequence that ends with this edge, then next_end(it), ...
    std::int32_t branch = 0;      // key of the children, see edges_
  };

  // Takes every sequence in turn, so that siblings stand in the order of first appearance.
  // `offsets` must be valid (see BatchPlan); `tokens` must outlive the trie. Without `share` each
  // sequence becomes a child of the root. Throws kBadRequest for a token outside [0, vocab_size).
  TokenTrie(std::span<const std::int32_t> tokens, std::span<const std::int64_t> offsets,
            std::int32_t vocab_size, bool share);

  const Node& node(std::int32_t index) const { return nodes_[static_cast<std::size_t>(index)]; }
  const Node& root() const { return nodes_.front(); }
  std::span<const std::int32_t> edge(const Node& node) const {
    return tokens_.subspan(static_cast<std::size_t>(node.begin),
                           static_cast<std::size_t>(node.length));
  }
  std::int32_t next_end(std::int32_t sequence) const {
    return next_end_[static_cast<std::size_t>(sequence)];
  }

  // Tokens on all edges: the rows of the plan.
  std::int64_t size() const { return size_; }

 private:
  void insert(std::int32_t sequence, std::int64_t begin, std::int64_t end);
  void append(std::int32_t parent, std::int32_t sequence, std::int64_t begin, std::int64_t end);
  void split(std::int32_t index, std::int32_t length);
  void end_at(std::int32_t index, std::int32_t sequence);
  void check_vocabulary(std::int32_t sequence, std::int64_t begin, std::int64_t end) const;

  Node& at(std::int32_t index) { return nodes_[static_cast<std::size_t>(index)]; }
  std::int32_t token(std::int64_t index) const { return tokens_[static_cast<std::size_t>(index)]; }

  std::span<const std::int32_t> tokens_;
  std::span<const std::int64_t> offsets_;
  std::int32_t vocab_size_;
  bool share_;
  std::int64_t size_ = 0;
  std::int32_t branches_ = 1;
  std::vector<Node> nodes_;
  std::vector<std::int32_t> next_end_;
  // (branch of the parent, first token of the edge) -> child. Ordered, so that no choice of tokens
  // makes it slow.
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> edges_;
};

}  // namespace openjev

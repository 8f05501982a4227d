// The binomial tree over the ranks of a group, with rank 0 at its root.

#ifndef TF_GC_OPS_COLLECTIVES_BINOMIAL_TREE_H_
#define TF_GC_OPS_COLLECTIVES_BINOMIAL_TREE_H_

#include <algorithm>
#include <vector>

namespace tf_gc {

// Rank r's parent is r without its lowest bit. The children, and their
// subtrees, are in the order in which they are done: the smallest first.
class BinomialTree {
 public:
  BinomialTree(int rank, int ranks) : rank_(rank) {
    for (int bit = 1; rank + bit < ranks && !(rank & bit); bit *= 2) {
      children_.push_back(rank + bit);
      sizes_.push_back(std::min(bit, ranks - rank - bit));
    }
  }

  bool is_root() const { return rank_ == 0; }
  int parent() const { return rank_ & (rank_ - 1); }
  const std::vector<int>& children() const { return children_; }
  // The number of ranks in the subtree of a child.
  int subtree_size(size_t child) const { return sizes_[child]; }

 private:
  const int rank_;
  std::vector<int> children_, sizes_;
};

}  // namespace tf_gc

#endif  // TF_GC_OPS_COLLECTIVES_BINOMIAL_TREE_H_

#include "ops/collectives/size_history.h"

#include <algorithm>

namespace tf_gc {

void SizeHistory::BeginStep() {
  std::lock_guard<std::mutex> lock(mutex_);
  exchange_ = 0;
}

int64_t SizeHistory::Longest(const Message& message) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = last_.find({exchange_, message});
  if (found == last_.end()) return 0;
  const auto& sizes = found->second.sizes;
  return *std::max_element(sizes.begin(), sizes.end());
}

void SizeHistory::EndExchange(const Sizes& sizes) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (exchange_ == kMaxExchanges) return;
  for (const auto& [message, size] : sizes) {
    Last& last = last_[{exchange_, message}];
    last.sizes[last.count++ % kSteps] = size;
  }
  ++exchange_;
}

}  // namespace tf_gc

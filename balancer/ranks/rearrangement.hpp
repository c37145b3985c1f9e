// Where every item of a batch-parallel phase comes from: the permutation that post-balancing
// decides, as a value that can be composed, inverted and applied.
//
// Pure. OrchMLLM section 6: the encoded rows of a sample go from the encoder's ranks to the LLM's
// ranks by one exchange, `compose(inverse(encoder), llm)`, instead of two. Composition is
// associative; composing with an inverse gives the identity.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/vocabulary/result.hpp"

namespace troupe::balancer {

/// Item `index` of the batch on `rank`.
struct ItemRef {
  std::int32_t rank = 0;
  std::int32_t index = 0;

  friend auto operator<=>(const ItemRef&, const ItemRef&) = default;
};

/// For each new batch, where each of its items was. A bijection between all old and all new items.
/// Immutable; stored flat, because large clusters move hundreds of thousands of items.
class Rearrangement {
 public:
  /// Checks and takes over `sources[new batch][position] = old place`.
  ///
  /// `source_count` is the number of old ranks; 0 means the highest rank named plus one, but at
  /// least as many as there are new batches (ranks keep their number; a rank may have been empty).
  ///
  /// Errors:
  /// - invalid_argument: a negative rank or index, a rank beyond `source_count`, an item that
  ///   occurs twice, or an index that is skipped.
  static Result<Rearrangement> create(const std::vector<std::vector<ItemRef>>& sources,
                                      std::size_t source_count = 0);

  /// Every item stays. Shape: sizes[rank].
  static Rearrangement identity(std::span<const std::int32_t> sizes);

  /// Takes over a flat form that is known to be a bijection. `offsets` has one entry more than
  /// there are batches. REQUIRES: `create` would accept it; not checked, it would cost as much
  /// again.
  static Rearrangement from_flat(std::vector<ItemRef> items, std::vector<std::int32_t> offsets,
                                 std::vector<std::int32_t> source_sizes);

  std::size_t batch_count() const { return offsets_.size() - 1; }
  std::size_t source_count() const { return source_sizes_.size(); }
  std::size_t item_count() const { return items_.size(); }
  std::span<const ItemRef> batch(std::size_t index) const {
    return std::span(items_).subspan(
        static_cast<std::size_t>(offsets_[index]),
        static_cast<std::size_t>(offsets_[index + 1] - offsets_[index]));
  }
  std::span<const std::int32_t> source_sizes() const { return source_sizes_; }

  /// The rearrangement that undoes this one. Cost: O(items).
  Rearrangement inverse() const;

  /// The same batches in another order: batch b moves to place `place_of[b]`.
  /// REQUIRES: place_of is a permutation of the batches.
  Rearrangement permuted(std::span<const std::int32_t> place_of) const;

  /// Moves values. REQUIRES: values[rank].size() == source_sizes()[rank].
  template <class T>
  std::vector<std::vector<T>> apply(const std::vector<std::vector<T>>& values) const {
    std::vector<std::vector<T>> moved(batch_count());
    for (std::size_t b = 0; b < moved.size(); ++b)
      for (const auto& item : batch(b))
        moved[b].push_back(
            values[static_cast<std::size_t>(item.rank)][static_cast<std::size_t>(item.index)]);
    return moved;
  }

  friend bool operator==(const Rearrangement&, const Rearrangement&) = default;

 private:
  Rearrangement() = default;

  std::vector<ItemRef> items_;         // Of all new batches, one after the other.
  std::vector<std::int32_t> offsets_;  // Of each batch in items_, and the end.
  std::vector<std::int32_t> source_sizes_;
};

/// `second` after `first` as one rearrangement: applying the result equals applying `first` and
/// then `second`. Cost: O(items).
///
/// Errors:
/// - invalid_argument: the batches that `first` makes are not those that `second` takes.
Result<Rearrangement> compose(const Rearrangement& first, const Rearrangement& second);

}  // namespace troupe::balancer

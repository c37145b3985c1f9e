#include "actors/observing/seen_parts.hpp"

#include <algorithm>
#include <utility>

#include "runtime/observers/whole_part.hpp"

namespace troupe::actors {

namespace {

/// A node of which nothing ever came is waited for until others are so many steps ahead: it may
/// have no part in the layout.
constexpr std::int64_t kStepsOfSilence = 2;

std::size_t size_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::fp64: return 8;
    case Dtype::bf16: return 2;
    case Dtype::fp32: break;
  }
  return 4;
}

}  // namespace

bool SeenParts::waits_for_nodes() const {
  return std::ranges::any_of(nodes_, [](const auto& one) { return one.second.first_step < 0; });
}

void SeenParts::begin(const std::vector<std::int32_t>& nodes) {
  for (const std::int32_t node : nodes) nodes_.try_emplace(node);
}

void SeenParts::here(std::int32_t node, std::int64_t first_step) {
  const bool waited = waits_for_nodes();
  Node& place = nodes_[node];
  const std::int64_t dropped = place.dropped;  // It counts on.
  place = {};
  place.first_step = std::max<std::int64_t>(first_step, 0);
  place.dropped = dropped;
  // Who comes later does not take back what others showed.
  if (waited) first_step_ = std::max(first_step_, first_step);
  if (!waits_for_nodes()) take_early();
}

void SeenParts::gone(std::int32_t node) {
  const auto found = nodes_.find(node);
  if (found == nodes_.end()) return;
  missed_before_ += found->second.dropped;
  nodes_.erase(found);
  if (!waits_for_nodes()) take_early();
}

/// What came while nodes had not said from where on; and nobody waits for one that left.
void SeenParts::take_early() {
  for (auto& seen : std::exchange(early_, {}))
    std::visit([this](auto& one) { take(std::move(one)); }, seen);
  say_words();
}

void SeenParts::take(SeenPiece piece) {
  const auto found = nodes_.find(piece.node);
  if (found == nodes_.end()) return;
  if (waits_for_nodes()) return early_.emplace_back(std::move(piece)), void();
  found->second.shows = true;
  if (piece.step >= first_step_) add(found->second, piece);
}

void SeenParts::take(SeenStep step) {
  const auto found = nodes_.find(step.node);
  if (found == nodes_.end()) return;
  if (waits_for_nodes()) return early_.emplace_back(std::move(step)), void();
  found->second.dropped = step.dropped;
  if (step.step < first_step_) return;
  found->second.word = std::max(found->second.word, step.step);
  note(step);
  say_words();
}

void SeenParts::add(Node& node, SeenPiece& piece) {
  if (piece.begin == 0) {
    node.part = std::make_unique<observers::Observed>();
    node.part->step = piece.step;
    node.part->module = std::move(piece.module);
    node.part->kind = static_cast<observers::Kind>(std::min<std::uint8_t>(piece.kind, 2));
    node.part->replica = piece.replica;
    node.part->microbatch = piece.microbatch;
    node.part->part = piece.part;
    node.part->ids = std::move(piece.ids);
    node.part->rows = std::move(piece.rows);
    node.part->first_rows = std::move(piece.first_rows);
    node.part->width = piece.width;
    node.part->values = {nullptr, nullptr, 0,
                         static_cast<Dtype>(std::min<std::uint8_t>(piece.dtype, 2))};
    node.bytes_all = piece.bytes_all;
    node.bytes = std::make_shared<std::vector<std::uint8_t>>(std::move(piece.bytes));
  } else if (node.part && piece.begin == node.bytes->size()) {
    node.bytes->insert(node.bytes->end(), piece.bytes.begin(), piece.bytes.end());
  } else {
    broken_ += node.part ? 1 : 0;
    node.part.reset();
    return;
  }
  if (node.bytes->size() >= node.bytes_all) finish(node);
}

void SeenParts::finish(Node& node) {
  const auto part = std::move(node.part);
  const auto bytes = std::move(node.bytes);
  const std::size_t each = size_of(part->values.dtype());
  part->values = {bytes, bytes->data(), bytes->size() / each, part->values.dtype()};
  if (bytes->size() != node.bytes_all || bytes->size() % each != 0 || !observers::is_whole(*part)) {
    ++broken_;
    return;
  }
  ++parts_;
  observer_.see(*part);
}

void SeenParts::note(const SeenStep& step) {
  newest_word_ = std::max(newest_word_, step.step);
  if (step.step <= said_) return;  // Of a node that was not waited for.
  words_.try_emplace(
      step.step,
      observers::ObservedStep{step.step, step.committed, step.loss, step.grad_norm,
                              step.learning_rate, step.tokens, step.trained_tokens, step.ids});
}

/// Whether the node may still show something of this step.
bool SeenParts::is_behind(const Node& node, std::int64_t step) const {
  if (node.word > 0 || node.shows) return node.word < step;
  return node.first_step <= step && newest_word_ < step + kStepsOfSilence;
}

void SeenParts::say_first() {
  auto word = words_.extract(words_.begin());
  said_ = word.key();
  ++steps_;
  observer_.see(word.mapped());
}

void SeenParts::say_words() {
  while (!words_.empty()) {
    const std::int64_t step = words_.begin()->first;
    const bool waits =
        std::ranges::any_of(nodes_, [&](const auto& one) { return is_behind(one.second, step); });
    if (waits && words_.size() <= kWordsMax) return;
    say_first();
  }
}

void SeenParts::end() {
  while (!words_.empty()) say_first();
  missed_before_ = missed();
  nodes_.clear();
  early_.clear();
  first_step_ = newest_word_ = 0;
  said_ = 0;
}

std::int64_t SeenParts::missed() const {
  std::int64_t missed = missed_before_;
  for (const auto& [number, node] : nodes_) missed += node.dropped;
  return missed;
}

}  // namespace troupe::actors

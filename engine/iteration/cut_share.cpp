#include "engine/iteration/cut_share.hpp"

#include <algorithm>
#include <utility>

namespace troupe::engine {

namespace {

using Units = std::vector<WantedUnit>;

/// What a unit is encoded for: llm microbatch, then llm replica.
std::pair<std::size_t, std::size_t> fed(const WantedUnit& unit) {
  return {unit.microbatch, unit.cut};
}

/// By what they are encoded for; from the place that is returned on those without work.
Units::iterator sort_by_fed(Units& units) {
  const auto idle = std::stable_partition(units.begin(), units.end(),
                                          [](const WantedUnit& unit) { return unit.work > 0; });
  std::stable_sort(units.begin(), idle,
                   [](const WantedUnit& a, const WantedUnit& b) { return fed(a) < fed(b); });
  return idle;
}

Part& first_part(Microbatch& microbatch) {
  return microbatch.parts.empty() ? microbatch.parts.emplace_back() : microbatch.parts.front();
}

/// Parts by llm microbatch, then llm replica; samples without work with the first.
Microbatch microbatch_of(Units units, bool splits_parts) {
  Microbatch made;
  if (!splits_parts) {
    for (const WantedUnit& unit : units) first_part(made).samples.push_back(unit.sample);
    return made;
  }
  const auto idle = sort_by_fed(units);
  for (auto unit = units.begin(); unit != idle; ++unit) {
    if (unit == units.begin() || fed(*unit) != fed(unit[-1])) made.parts.emplace_back();
    made.parts.back().samples.push_back(unit->sample);
  }
  for (auto unit = idle; unit != units.end(); ++unit)
    first_part(made).samples.push_back(unit->sample);
  return made;
}

/// `share`: of one round.
void append_slices(Units share, const ShareCut& how, MicrobatchList& list) {
  if (how.slices == 1) {
    list.push_back(microbatch_of(std::move(share), how.splits_parts));
    return;
  }
  double total = 0;
  for (const WantedUnit& unit : share) total += unit.work;
  std::vector<Units> slices(how.slices);
  double before = 0;
  for (const WantedUnit& unit : share) {
    const double middle = before + unit.work / 2;
    const auto slice =
        total > 0 ? static_cast<std::size_t>(middle / total * static_cast<double>(how.slices)) : 0;
    slices[std::min(slice, how.slices - 1)].push_back(unit);
    before += unit.work;
  }
  for (auto& slice : slices)
    if (!slice.empty()) list.push_back(microbatch_of(std::move(slice), how.splits_parts));
}

/// The same, for one microbatch of the llm each.
void append_by_llm(Units share, const ShareCut& how, MicrobatchList& list) {
  const auto idle = sort_by_fed(share);
  for (auto first = share.begin(); first != share.end();) {
    const auto last =
        std::find_if(first, idle, [&](const WantedUnit& unit) { return fed(unit) != fed(*first); });
    Units own(first, last);
    if (first == share.begin()) own.insert(own.end(), idle, share.end());
    list.push_back(microbatch_of(std::move(own), how.splits_parts));
    first = last == idle ? share.end() : last;
  }
}

}  // namespace

MicrobatchList cut_share(const std::vector<WantedUnit>& share, const ShareCut& how) {
  MicrobatchList list;
  for (auto first = share.begin(); first != share.end();) {
    const auto last = std::find_if(
        first, share.end(), [&](const WantedUnit& unit) { return unit.round != first->round; });
    if (how.by_llm)
      append_by_llm({first, last}, how, list);
    else
      append_slices({first, last}, how, list);
    first = last;
  }
  return list;
}

}  // namespace troupe::engine

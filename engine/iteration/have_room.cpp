#include "engine/iteration/have_room.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "balancer/loads/sum_rounding.hpp"
#include "runtime/vocabulary/index.hpp"
#include "scheduler/iteration/phase_windows.hpp"

namespace troupe::engine {

namespace {

/// The microbatches of a replica in one round.
struct RoundShare {
  std::vector<double> filled;   ///< Per microbatch: of the replica's room.
  std::vector<double> staying;  ///< Of that, what is there beside another one too.
  /// What units with work are encoded for, and which of these microbatches has them.
  std::vector<std::pair<EncodedFor, std::int32_t>> units;
};

/// By round.
std::map<std::size_t, RoundShare> shares_of(const MicrobatchList& list, std::size_t replica,
                                            std::span<const EncodedFor> targets,
                                            const PhaseWork& work) {
  std::map<std::size_t, RoundShare> rounds;
  for (const Microbatch& microbatch : list) {
    RoundShare* own = nullptr;
    for (const Part& part : microbatch.parts)
      for (const std::int32_t unit : part.samples) {
        const EncodedFor& target = targets[at(unit)];
        if (own == nullptr) {
          own = &rounds[target.round];
          own->filled.push_back(0);
          own->staying.push_back(0);
        }
        if (!(work.work_of(at(unit)) > 0)) continue;  // The llm waits for no rows of it.
        own->filled.back() += work.room_share(at(unit), replica);
        own->staying.back() += work.staying_share(at(unit), replica);
        own->units.emplace_back(target, static_cast<std::int32_t>(own->filled.size() - 1));
      }
  }
  return rounds;
}

/// Whether replicas have room for their shares of a round, whose windows are in the same places.
bool fit_together(std::span<const RoundShare> shares) {
  std::size_t places = 1;
  std::map<EncodedFor, std::pair<std::int32_t, std::int32_t>> ends;  // First and last place.
  for (const RoundShare& share : shares) {
    places = std::max(places, share.filled.size());
    for (const auto& [target, place] : share.units) {
      auto& [first, last] = ends.try_emplace(target, place, place).first->second;
      first = std::min(first, place);
      last = std::max(last, place);
    }
  }
  scheduler::WindowCuts cuts(static_cast<std::int32_t>(places));
  for (const auto& [target, own] : ends) cuts.join(own.first, own.second);
  const auto windows = cuts.windows(1);
  for (const RoundShare& share : shares) {
    std::vector<double> staying(places), leaving(places);  // Per window.
    for (std::size_t place = 0; place < share.filled.size(); ++place) {
      const std::size_t window = at(windows[place]);
      staying[window] += share.staying[place];
      // One microbatch after the other has it on the device.
      leaving[window] = std::max(leaving[window], share.filled[place] - share.staying[place]);
    }
    for (std::size_t window = 0; window < places; ++window)
      if (staying[window] + leaving[window] > 1 + balancer::kSumRounding) return false;
  }
  return true;
}

}  // namespace

std::vector<EncodedFor> encoded_for(std::span<const LlmCut> cuts, const PhaseWork& work) {
  std::vector<EncodedFor> targets(work.samples.size() + work.piece_work.size());
  for (std::size_t c = 0; c < cuts.size(); ++c) {
    const auto note = [&](const MicrobatchList& list, std::size_t EncodedFor::*number) {
      for (std::size_t m = 0; m < list.size(); ++m)
        for (const Part& part : list[m].parts)
          for (const std::int32_t sample : part.samples) {
            targets[at(sample)].llm = c;
            targets[at(sample)].*number = m;
          }
    };
    note(cuts[c].cut.encoder, &EncodedFor::round);
    note(cuts[c].cut.llm, &EncodedFor::microbatch);
  }
  for (const auto& [sample, pieces] : work.cut)
    for (const std::int32_t piece : pieces) targets[at(piece)] = targets[at(sample)];
  return targets;
}

bool have_room(std::span<const MicrobatchList> lists, std::span<const EncodedFor> targets,
               const PhaseWork& work, bool in_windows) {
  std::map<std::size_t, std::vector<RoundShare>> rounds;
  for (std::size_t r = 0; r < lists.size(); ++r)
    for (auto& [round, share] : shares_of(lists[r], r, targets, work))
      rounds[round].push_back(std::move(share));
  return std::ranges::all_of(rounds, [&](const auto& round) {
    const std::span<const RoundShare> shares(round.second);
    if (in_windows) return fit_together(shares);
    for (std::size_t r = 0; r < shares.size(); ++r)
      if (!fit_together(shares.subspan(r, 1))) return false;
    return true;
  });
}

}  // namespace troupe::engine

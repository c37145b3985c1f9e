// The supervisor among random events: processes die, vanish, are told to end and join while a job
// starts, trains, saves and ends. TROUPE_SUPERVISOR_EVENTS: how many; scripts/test --chaos: a
// million. Another seed by TROUPE_SEED; it is told.

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <functional>
#include <random>
#include <set>
#include <sstream>
#include <tuple>
#include <utility>

#include "tests/actors/head_fixture.hpp"
#include "tests/actors/template_set.hpp"
#include "tests/support/scratch_folder.hpp"

namespace troupe::actors {
namespace {

using namespace std::chrono_literals;

constexpr std::int64_t kSteps = 12;
constexpr std::int64_t kSeed = 20785;  // The same every day: a failure is a change's.

std::int64_t number_in(const char* variable, std::int64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoll(text);
}

/// What the process in one place has done of what it was told; indexes into what was seen there.
struct Place {
  bool is_alive = false;
  std::int32_t pid = 0;
  std::size_t first_configuration = 0;
  std::size_t plans = 0, decisions = 0, collections = 0, saves = 0, endings = 0;
  EpochNumber fetched = 0, applied = 0;
  std::int64_t prepared = 0, finished = 0;  ///< Newest steps, of the layout that was applied.
};

/// What jobs lived through.
struct Lived {
  std::int64_t steps = 0, layouts = 0, losses = 0, joins = 0, done = 0, restarts = 0;
};

/// One job, from its start until it has ended or enough has happened to it.
class Episode {
 public:
  Episode(std::mt19937_64& draw, Lived& lived)
      : draw_(draw), lived_(lived), head_(kSteps, [&](job::Job& job) {
          job.job.run_dir = scratch_ / "run";
          job.cluster.min_nodes = static_cast<std::int32_t>(below(4));
          job.cluster.spares = below(4) == 0 ? 1 : 0;
          job.recovery.wait_for_nodes_s = 1;
          job.debug.warm_up_bytes = std::array{0, 1, 3000}[below(3)];
          job.checkpoint.every_steps = static_cast<std::int64_t>(below(4));
          job.cluster.stop_timeout_s = 2;
        }) {
    templates_ = templates_of(head_.resources.setup);
  }

  /// So many events at most; returns how many.
  std::int64_t run(std::int64_t most) {
    std::int64_t count = 0;
    for (; count < most && !head_.ended; ++count) {
      if (below(100) < 10 || !go_on()) disturb();
      check();
    }
    // Whatever happened, left to itself the job trains on, ends, or says that it waits.
    const std::size_t before = head_.recorder.steps.size();
    for (int quiet = 0; !head_.ended && head_.recorder.steps.size() == before; ++count) {
      if (!go_on()) {
        head_.system.pass(500ms);
        REQUIRE(++quiet < 100);
      }
      check();
    }
    if (head_.ended && head_.ended->exit_code == 0) ++lived_.done;
    if (head_.ended && head_.ended->again > 0) ++lived_.restarts;
    for (const auto& event : head_.recorder.events) {
      lived_.losses += event.kind == "lost" ? 1 : 0;
      lived_.joins += event.kind == "joined" ? 1 : 0;
    }
    return count;
  }

 private:
  std::size_t below(std::size_t count) { return draw_() % count; }

  const Configuration* newest(std::size_t id) const {
    const auto& all = head_.seen[id].configurations;
    return all.size() > places_[id].first_configuration ? &all.back() : nullptr;
  }

  /// A process of the job does one thing that it was told, if any was.
  bool go_on() {
    std::vector<std::function<void()>> ways;
    if (!has_templates_ && !head_.scheduler.begins.empty())
      ways.push_back([this] {
        has_templates_ = true;
        head_.tell(templates_);
      });
    if (head_.scheduler.asked > served_ && !head_.scheduler.begins.empty())
      ways.push_back([this] { plan(); });
    if (head_.keeper.written.size() > kept_) ways.push_back([this] { keep(); });
    for (std::size_t id = 0; id < places_.size(); ++id)
      if (places_[id].is_alive) add_ways(id, ways);
    if (ways.empty()) return false;
    ways[below(ways.size())]();
    return true;
  }

  void plan() {
    if (begins_ != head_.scheduler.begins.size()) {
      begins_ = head_.scheduler.begins.size();
      batch_ = head_.scheduler.next.back();
    }
    served_ = head_.scheduler.asked;
    head_.plan(batch_++);
  }

  void keep() {
    KeptCheckpoint kept;
    kept.number = head_.keeper.written[kept_++].number;
    if (below(5) == 0) kept.status = Error{Errc::io_failed, "disk full", {}, {}};
    head_.tell(std::make_shared<const KeptCheckpoint>(kept));
  }

  void add_ways(std::size_t id, std::vector<std::function<void()>>& ways) {
    Place& place = places_[id];
    const NodeSeen& seen = head_.seen[id];
    const Configuration* now = newest(id);
    if (now == nullptr) return;
    const EpochNumber epoch = now->epoch_number;
    if (place.fetched < epoch)
      ways.push_back([this, id, epoch] {
        places_[id].fetched = epoch;
        head_.tell(fetched_atom::value, NodeId{id}, epoch, 0.0);
      });
    const bool is_settled = !seen.settled.empty() && seen.settled.back() == epoch;
    if (is_settled && place.applied < epoch)
      ways.push_back([this, id, epoch] {
        Place& it = places_[id];
        it.applied = epoch;
        it.prepared = it.finished = 0;
        head_.tell(applied_atom::value, NodeId{id}, epoch);
      });
    if (seen.collections.size() > place.collections)
      ways.push_back([this, id, epoch] {
        ++places_[id].collections;
        head_.tell(Offers{NodeId{id}, epoch, {}});
      });
    if (seen.saves.size() > place.saves) ways.push_back([this, id] { write(id); });
    if (place.applied == epoch) add_step(id, *now, ways);
  }

  void write(std::size_t id) {
    const SaveOrder& order = head_.seen[id].saves[places_[id].saves++];
    if (order.shards.empty()) return;
    SaveReport report{order.number, {NodeId{id}, 0}, below(10) > 0};
    report.file = "state-" + std::to_string(id);
    report.bytes = 10;
    report.sha256 = "ab";
    head_.tell(report);
  }

  void add_step(std::size_t id, const Configuration& now,
                std::vector<std::function<void()>>& ways) {
    Place& place = places_[id];
    const auto& devices = now.plan.devices;
    const auto device = std::find_if(devices.begin(), devices.end(), [id](const DeviceSlot& slot) {
      return slot.node == NodeId{id};
    });
    if (device == devices.end()) return;
    const auto number = static_cast<std::size_t>(device - devices.begin());
    const EpochNumber epoch = now.epoch_number;
    for (const auto& plan : head_.seen[id].plans) {
      if (plan.epoch_number != epoch || plan.step <= place.prepared) continue;
      if (place.prepared != place.finished) break;  // One after the other.
      ways.push_back([this, id, number, epoch, step = plan.step] {
        places_[id].prepared = step;
        prepared_.emplace(epoch, step, number);
        head_.prepared(number, step, 1, 1, epoch);
      });
      break;
    }
    const bool is_decided =
        place.prepared > place.finished && words_.contains({epoch, id, place.prepared});
    if (is_decided)
      ways.push_back([this, id, number, epoch] {
        places_[id].finished = places_[id].prepared;
        head_.finished(number, places_[id].prepared, epoch);
      });
  }

  void disturb() {
    const std::size_t id = below(4);
    Place& place = places_[id];
    switch (below(9)) {
      case 0:  // It is killed, and its parent notices.
        if (!place.is_alive || is_careful()) return;
        place.is_alive = false;
        head_.kill(place.pid);
        break;
      case 1:  // Its machine vanishes.
        if (!place.is_alive || is_careful()) return;
        place.is_alive = false;
        head_.leave({id});
        break;
      case 2:  // A signal to it.
        if (!place.is_alive || below(3) > 0) return;
        head_.tell(failed_atom::value, NodeId{id},
                   Error{Errc::cancelled, "stopped by SIGTERM", {}, {}});
        break;
      case 3: {  // Something that was said in an older layout comes late.
        if (newest_epoch_ == 0) return;
        const EpochNumber older = static_cast<EpochNumber>(below(newest_epoch_));
        head_.prepared(below(4), static_cast<std::int64_t>(below(kSteps)), 1, 1, older);
        head_.tell(fetched_atom::value, NodeId{id}, older, 0.0);
        break;
      }
      case 4:
        if (below(40) == 0) head_.tell(stop_atom::value, std::int32_t{15});
        break;
      case 5: head_.tell(save_atom::value); break;
      case 6: head_.system.pass(std::chrono::milliseconds(50 * (1 + below(8)))); break;
      default: join(); break;
    }
  }

  /// Most jobs are to live for a while.
  bool is_careful() {
    const auto alive = std::count_if(places_.begin(), places_.end(),
                                     [](const Place& place) { return place.is_alive; });
    return alive < 3 && below(20) > 0;
  }

  void join() {
    const std::string answer = head_.join("host");
    ++asked_;
    if (answer.size() != 1) return;
    const auto id = static_cast<std::size_t>(answer[0] - '0');
    const NodeSeen& seen = head_.seen[id];
    Place& place = places_[id];
    place = {};
    place.is_alive = true;
    place.pid = 99 + asked_;
    place.first_configuration = seen.configurations.size();
    place.decisions = seen.decisions.size();
    place.collections = seen.collections.size();
    place.saves = seen.saves.size();
    place.endings = seen.stops.size() + seen.restarts.size();
    head_.ready(id);
  }

  void check() {
    for (std::size_t id = 0; id < places_.size(); ++id) {
      Place& place = places_[id];
      const NodeSeen& seen = head_.seen[id];
      if (seen.stops.size() + seen.restarts.size() > place.endings) place.is_alive = false;
      for (; configurations_[id] < seen.configurations.size(); ++configurations_[id]) {
        const EpochNumber epoch = seen.configurations[configurations_[id]].epoch_number;
        REQUIRE(epoch > told_[id]);  // Generations grow, whoever works in this place.
        told_[id] = epoch;
        if (epoch > newest_epoch_) ++lived_.layouts;
        newest_epoch_ = std::max(newest_epoch_, epoch);
      }
      for (; place.decisions < seen.decisions.size(); ++place.decisions) {
        const engine::Decision& word = seen.decisions[place.decisions];
        const Configuration* now = newest(id);
        REQUIRE(now != nullptr);
        words_.insert({now->epoch_number, id, word.step});
        if (!word.commit) continue;
        for (std::size_t device = 0; device < now->plan.devices.size(); ++device) {
          INFO("step " << word.step << " of layout " << now->epoch_number << ", device " << device);
          REQUIRE(prepared_.contains({now->epoch_number, word.step, device}));
        }
      }
    }
    for (; recorded_ < head_.recorder.steps.size(); ++recorded_)  // None twice, none left out.
      REQUIRE(head_.recorder.steps[recorded_]->metrics.step ==
              static_cast<std::int64_t>(recorded_) + 1);
    lived_.steps += static_cast<std::int64_t>(recorded_) -
                    std::exchange(counted_, static_cast<std::int64_t>(recorded_));
  }

  std::mt19937_64& draw_;
  Lived& lived_;
  std::int64_t counted_ = 0;
  testing::ScratchFolder scratch_;
  Head head_;
  TemplateSetPtr templates_;
  bool has_templates_ = false;
  std::vector<Place> places_ = std::vector<Place>(4);
  std::vector<std::size_t> configurations_ = std::vector<std::size_t>(4);
  std::set<std::tuple<EpochNumber, std::int64_t, std::size_t>> prepared_;  ///< Step and device.
  std::set<std::tuple<EpochNumber, std::size_t, std::int64_t>> words_;     ///< Place and step.
  std::vector<EpochNumber> told_ = std::vector<EpochNumber>(4);
  EpochNumber newest_epoch_ = 0;
  std::int32_t asked_ = 0;
  int served_ = 0;
  std::size_t begins_ = 0, kept_ = 0, recorded_ = 0;
  std::int64_t batch_ = 0;
};

TEST_CASE("random events never make a job forget, repeat or wait for ever", "[actors][chaos]") {
  const auto seed = static_cast<std::uint64_t>(number_in("TROUPE_SEED", kSeed));
  std::int64_t left = number_in("TROUPE_SUPERVISOR_EVENTS", 20'000);
  const std::int64_t all = left;
  Lived lived;
  for (std::uint64_t episode = 0; left > 0; ++episode) {
    INFO("TROUPE_SEED=" << seed << ", episode " << episode);
    std::mt19937_64 draw(seed * 1'000'003 + episode);
    Episode job(draw, lived);
    left -= job.run(std::min<std::int64_t>(left, 400));
  }
  std::ostringstream text;
  text << all << " events: " << lived.steps << " steps, " << lived.layouts << " layouts, "
       << lived.losses << " losses borne, " << lived.joins << " joins, " << lived.done
       << " jobs done, " << lived.restarts << " begun again";
  WARN(text.str());
  // Else the events tell nothing.
  CHECK(lived.steps > all / 50);
  CHECK(lived.losses > all / 400);
  CHECK(lived.done > all / 1000);
}

}  // namespace
}  // namespace troupe::actors

#include "engine/contract/states.hpp"

#include <ATen/ops/equal.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <utility>

#include "engine/contract/moves.hpp"
#include "runtime/vocabulary/first_line.hpp"
#include "runtime/vocabulary/host_state.hpp"

namespace troupe::engine {

namespace {

constexpr std::int64_t kSteps = 2;  // The second goes on with what went behind the first.

Error fault(std::string found) { return {Errc::internal, std::move(found), {}, {}}; }

/// A use of a group by the stage; the first one has what its device keeps for all of them.
struct StateUse {
  GroupId group;
  LayerId layer;
  bool is_first = false;
};

std::vector<StateUse> uses_of(const ParallelPlan& plan, StageId id) {
  std::vector<StateUse> uses;
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    bool is_first = true;
    for (const ParameterUse& use : plan.groups[g].uses)
      if (use.stage == id) uses.push_back({GroupId{g}, use.layer, std::exchange(is_first, false)});
  }
  return uses;
}

std::vector<StateUse> first_uses_of(const ParallelPlan& plan, StageId id) {
  std::vector<StateUse> uses = uses_of(plan, id);
  std::erase_if(uses, [](const StateUse& use) { return !use.is_first; });
  return uses;
}

/// Those whose moments are in host memory but for their update.
std::vector<StateUse> uses_in_host(const ParallelPlan& plan, StageId id) {
  std::vector<StateUse> uses = first_uses_of(plan, id);
  std::erase_if(uses, [&](const StateUse& use) { return !moments_in_host(plan, use.group); });
  return uses;
}

/// Some numbers of a group, in words: `first moment of 'vision.weight'`.
struct StateNumbers {
  std::string words;
  at::Tensor numbers;  ///< The store's memory.
  bool are_moments = false;
};

std::vector<StateNumbers> numbers_of(const StageBench& bench, GroupId id, const StateStore& state) {
  const ParameterGroup& group = bench.plan().groups[id.index()];
  const auto& parameters = bench.setup().parameters;
  std::vector<StateNumbers> all;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const ParameterInfo& info = parameters[p];
    const bool is_alone = info.uses.size() == 1 && info.uses.front() == group.uses.front().layer;
    if (!info.trains || !(group.tied ? info.name == group.name : is_alone)) continue;
    const auto held = [&](StateKind kind) {
      return state.held({ParameterId{p}, kind, whole_box(info.shape)});
    };
    const std::string of = " of '" + info.name + "'";
    all.push_back({"value" + of, held(StateKind::value)});
    const at::Tensor moments = held(StateKind::moments);
    all.push_back({"first moment" + of, moments.select(0, 0), true});
    all.push_back({"second moment" + of, moments.select(0, 1), true});
  }
  return all;
}

/// A stage whose states are asked in work of a device.
class AskedStage {
 public:
  AskedStage(const StageBench& bench, StageId id, StageProgram& stage, Device& device)
      : bench_(bench), id_(id), stage_(stage), device_(device) {}

  /// What is found of a call of a state, with its name and the group's.
  Status ask(const StateUse& use, const std::string& call,
             const std::function<Status(GroupState&)>& asks) const {
    const Status asked =
        in_work(device_, [&]() -> Status { return asks(stage_.state(use.group, use.layer)); });
    if (asked.ok()) return asked;
    const std::string& group = bench_.plan().groups[use.group.index()].name;
    return fault("`" + call + "` of '" + group + "' " + first_line(asked.error().message));
  }

  /// On a host, by the caller's thread.
  Status round(const StageRows& inputs) const {
    const auto ran = bench_.round(stage_, id_, {}, inputs);
    return ran.ok() ? Status(Done{}) : Status(ran.error());
  }

  Status step(std::int64_t step) const {
    const Status taken = in_work(device_, [&]() -> Status {
      take_step(bench_, id_, stage_, step);
      return Done{};
    });
    return taken.ok() ? taken : Status(fault("`update` " + first_line(taken.error().message)));
  }

 private:
  const StageBench& bench_;
  StageId id_;
  StageProgram& stage_;
  Device& device_;
};

/// The first parameter of which there is no copy, or one that is not its part of the flat
/// gradients; empty: none.
std::string miscopied(const std::map<std::string, at::Tensor>& copies, const GroupState& state,
                      const at::Tensor& gradients) {
  std::int64_t begin = 0;
  for (const models::Parameter* parameter : state.parameters()) {
    const at::Tensor& value = parameter->value;
    const at::Tensor own = gradients.narrow(0, begin, value.numel()).view(value.sizes());
    begin += value.numel();
    const auto copy = copies.find(parameter->name);
    if (copy == copies.end() || !copy->second.defined() ||
        copy->second.scalar_type() != own.scalar_type() || copy->second.sizes() != own.sizes() ||
        !at::equal(copy->second, own))
      return parameter->name;
  }
  return {};
}

Status hold_copies_of(GroupState& state) {
  const std::string other = "of another group";
  std::map<std::string, at::Tensor> copies;
  copies[other] = at::Tensor{};
  state.copy_gradients(copies);
  at::Tensor& flat = state.gradients();
  const at::Tensor gradients = flat.clone();
  if (const auto name = miscopied(copies, state, gradients); !name.empty())
    return fault("gives another gradient of '" + name + "' than `gradients` has, or none");
  if (copies.size() != state.parameters().size() + 1 || !copies.contains(other))
    return fault("gives or takes what is no gradient of the group");
  flat.add_(1);
  const auto name = miscopied(copies, state, gradients);
  flat.copy_(gradients);
  if (name.empty()) return Done{};
  return fault("gives no copy of the gradient of '" + name + "': it changes with `gradients`");
}

Status hold_copies(const StageBench& bench, StageId id, const StageRows& inputs,
                   const StateStore& state) {
  const auto stage = bench.make(id, state);
  if (!stage.ok()) return stage.error();
  const auto host = make_device({});
  const AskedStage asked(bench, id, *stage.value(), *host);
  if (auto ran = asked.round(inputs); !ran.ok()) return ran;
  for (const StateUse& use : uses_of(bench.plan(), id))
    if (auto held = asked.ask(use, "copy_gradients", hold_copies_of); !held.ok()) return held;
  return Done{};
}

/// Whether a hash is another one for each number that is, and the same where that is back.
Status hold_hash_of(GroupState& state, const std::vector<StateNumbers>& all) {
  const std::uint64_t before = state.hash();
  for (const StateNumbers& one : all) {
    const at::Tensor last = one.numbers.view({-1}).narrow(0, one.numbers.numel() - 1, 1);
    const at::Tensor kept = last.clone();
    last.add_(1);
    const bool is_same = state.hash() == before;
    last.copy_(kept);
    if (is_same) return fault("is the same for another " + one.words);
  }
  at::Tensor& flat = state.gradients();
  const at::Tensor gradients = flat.clone();
  flat.add_(1);
  const bool is_same = state.hash() == before;
  flat.copy_(gradients);
  if (!is_same) return fault("is another one for the same values and moments");
  return Done{};
}

Status hold_hash(const StageBench& bench, StageId id, const StageRows& inputs,
                 const StateStore& state) {
  const auto stage = bench.make(id, state);
  if (!stage.ok()) return stage.error();
  const auto host = make_device({});
  const AskedStage asked(bench, id, *stage.value(), *host);
  if (auto ran = asked.round(inputs); !ran.ok()) return ran;
  if (auto updated = asked.step(1); !updated.ok()) return updated;
  const auto uses = first_uses_of(bench.plan(), id);
  for (const StateUse& use : uses)
    if (auto held = asked.ask(use, "hash",
                              [&](GroupState& own) {
                                return hold_hash_of(own, numbers_of(bench, use.group, state));
                              });
        !held.ok())
      return held;
  // A holder on standby has the engine's own state of the group.
  const auto copy = bench.copy(state);
  if (!copy.ok()) return copy.error();
  const auto standby = bench.make_built_in(id, copy.value());
  if (!standby.ok()) return standby.error();
  for (const StateUse& use : uses) {
    const std::uint64_t wanted = standby.value()->state(use.group, use.layer).hash();
    auto held = asked.ask(use, "hash", [&](GroupState& own) -> Status {
      if (own.hash() == wanted) return Done{};
      return fault("is another one than that of a holder on standby, which has the same state");
    });
    if (!held.ok()) return held;
  }
  return Done{};
}

std::string bytes_instead(Bytes said, Bytes wanted) {
  return "says " + std::to_string(said.count()) + " bytes instead of " +
         std::to_string(wanted.count());
}

/// A stage whose moments are in host memory but for their update, beside one that has them on the
/// device: the one's work runs late, where host memory has its contents when it has completed.
class MovingMoments {
 public:
  MovingMoments(const StageBench& bench, StageId id, const StageRows& inputs,
                const StateStore& state, const StateStore& moving)
      : bench_(bench),
        id_(id),
        inputs_(inputs),
        state_(state),
        moving_(moving),
        uses_(uses_in_host(bench.plan(), id)) {}

  Status run(StageProgram& stays, StageProgram& moves) const {
    const AskedStage staying(bench_, id_, stays, *host_), moved(bench_, id_, moves, *late_);
    for (std::int64_t step = 1; step <= kSteps; ++step) {
      for (const AskedStage* one : {&staying, &moved})
        if (auto ran = one->round(inputs_); !ran.ok()) return ran;
      if (auto updated = staying.step(step); !updated.ok()) return updated;
      if (auto came = fetch(moved); !came.ok()) return came;
      // What stands in their place is what counts, and goes back whole.
      for (const StateUse& use : uses_)
        for (const StateNumbers& one : numbers_of(bench_, use.group, moving_))
          if (one.are_moments) one.numbers.fill_(std::numeric_limits<double>::quiet_NaN());
      if (auto updated = moved.step(step); !updated.ok()) return updated;
      if (auto went = offload(moved); !went.ok()) return went;
      if (auto same = hold_same("behind an update of moments that came for it", false); !same.ok())
        return same;
    }
    return let_go(moved);
  }

 private:
  /// A step that ends behind an update: what came goes nowhere.
  Status let_go(const AskedStage& moved) const {
    if (auto ran = moved.round(inputs_); !ran.ok()) return ran;
    if (auto came = fetch(moved); !came.ok()) return came;
    if (auto updated = moved.step(kSteps + 1); !updated.ok()) return updated;
    for (const StateUse& use : uses_) {
      auto forgot = moved.ask(use, "forget_fetched_state", [](GroupState& own) -> Status {
        own.forget_fetched_state();
        if (own.has_fetched_state()) return fault("leaves copies, as `has_fetched_state` says");
        return Done{};
      });
      if (!forgot.ok()) return forgot;
    }
    return hold_same("behind `forget_fetched_state`", true);
  }

  Status fetch(const AskedStage& moved) const {
    for (const StateUse& use : uses_) {
      const Bytes wanted{2 * bench_.plan().groups[use.group.index()].elements *
                         static_cast<std::int64_t>(sizeof(double))};
      auto counted = moved.ask(use, "optimizer_bytes", [&](GroupState& own) -> Status {
        const Bytes said = own.optimizer_bytes();
        return said == wanted ? Status(Done{}) : Status(fault(bytes_instead(said, wanted)));
      });
      if (!counted.ok()) return counted;
      auto came = moved.ask(use, "fetch_state", [&](GroupState& own) -> Status {
        if (own.has_fetched_state()) return fault("comes where `has_fetched_state` is true");
        const Bytes said = own.fetch_state(*late_);
        if (said != wanted) return fault(bytes_instead(said, wanted));
        if (!own.has_fetched_state()) return fault("leaves `has_fetched_state` false");
        return Done{};
      });
      if (!came.ok()) return came;
    }
    return Done{};
  }

  Status offload(const AskedStage& moved) const {
    for (const StateUse& use : uses_) {
      auto went = moved.ask(use, "offload_state", [&](GroupState& own) -> Status {
        const Bytes wanted = own.optimizer_bytes(), said = own.offload_state(*late_);
        if (said != wanted) return fault(bytes_instead(said, wanted));
        if (own.has_fetched_state()) return fault("leaves `has_fetched_state` true");
        return Done{};
      });
      if (!went.ok()) return went;
    }
    return Done{};
  }

  /// Whether the stores have the same bits. Between steps alone.
  Status hold_same(const std::string& when, bool of_moments_alone) const {
    for (const StateUse& use : uses_) {
      const auto stayed = numbers_of(bench_, use.group, state_);
      const auto moved = numbers_of(bench_, use.group, moving_);
      for (std::size_t i = 0; i < stayed.size(); ++i)
        if ((stayed[i].are_moments || !of_moments_alone) &&
            !at::equal(stayed[i].numbers, moved[i].numbers))
          return fault(when + " the " + stayed[i].words +
                       " is not what it is where moments stay on the device");
    }
    return Done{};
  }

  const StageBench& bench_;
  StageId id_;
  const StageRows& inputs_;
  const StateStore& state_;
  const StateStore& moving_;
  const std::vector<StateUse> uses_;
  const std::unique_ptr<Device> host_ = make_device({});
  const std::unique_ptr<Device> late_ = late_device();
};

Status hold_moments(const StageBench& bench, StageId id, const StageRows& inputs,
                    const StateStore& state) {
  const auto copy = bench.copy(state);
  if (!copy.ok()) return copy.error();
  const auto stays = bench.make(id, state);
  if (!stays.ok()) return stays.error();
  const auto moves = bench.make(id, copy.value());
  if (!moves.ok()) return moves.error();
  return MovingMoments(bench, id, inputs, state, copy.value()).run(*stays.value(), *moves.value());
}

}  // namespace

std::vector<StatePromise> state_promises(const StageBench& bench, StageId id) {
  std::vector<StatePromise> all{
      {"gradient copies", "`copy_gradients`: a copy for each parameter, by its name", hold_copies},
      {"hash", "`hash`: of the bytes of values, masters and moments, as `ParameterShard` has it",
       hold_hash}};
  if (!uses_in_host(bench.plan(), id).empty())
    all.push_back({"moments",
                   "`fetch_state`, `offload_state` and `forget_fetched_state`: between the first "
                   "two the update works on copies, and host memory has its contents when the work "
                   "has completed (Device::write_to_host)",
                   hold_moments});
  return all;
}

}  // namespace troupe::engine

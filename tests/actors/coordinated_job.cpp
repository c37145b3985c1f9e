#include "tests/actors/coordinated_job.hpp"

#include <algorithm>
#include <string>

namespace troupe::actors {

namespace {

StepLoop steps_behind(JobProgress before, std::int64_t steps) {
  job::Job job;
  job.train.duration = {job::DurationUnit::steps, steps};
  const engine::SkippedSteps skipped(1 << 30, 1 << 30, before.skipped);
  return {std::move(before), engine::TrainingLength(job, data::Epochs(1 << 20)), skipped};
}

std::set<int> shards_of(const StatePlacement& placement, NodeId node) {
  std::set<int> shards;
  for (const Shard& shard : placement)
    for (const DeviceSlot& holder : shard.holders)
      if (holder.node == node) shards.insert(shard.key.parameter.value);
  return shards;
}

}  // namespace

CoordinatedJob::CoordinatedJob(std::mt19937_64& draw, Lived& lived, std::int64_t steps)
    : draw_(draw), lived_(lived), steps_(steps) {
  job.members = Membership(kPlaces);
  job.begin(steps_behind({}, steps), 0);
}

// What the actor does.

void CoordinatedJob::follow(Move move) {
  switch (move) {
    case Move::regroup: return regroup(found_);
    case Move::collect: return job.collect();
    case Move::close_empty: decide(job.loop.under_way().front().votes.step()); return finish_step();
    case Move::finish:
      while (job.has_ended_step()) finish_step();
      return;
    case Move::look_on: return ask();
    default: return;
  }
}

void CoordinatedJob::ask() {
  for (;;) {
    switch (job.next({wants_layout_, false})) {
      case Move::change_members:
        if (change_members()) return;
        break;
      case Move::asked_layout: {
        wants_layout_ = false;
        REQUIRE(job.loop.is_idle());
        const auto workers = find_layout(job.members.staying(), job.members.placed());
        if (!workers) break;
        return bring_up(*workers, placement_on(*workers), false);
      }
      case Move::plan:
        job.loop.ask();
        asked_.push_back(job.members.generation());
        return;
      default: return;
    }
  }
}

bool CoordinatedJob::change_members() {
  REQUIRE(job.loop.is_idle());
  const auto workers = find_layout(job.members.staying(), job.members.placed());
  if (!workers) {
    job.members.place_newcomers();
    const bool takes_state_away = job.members.takes_state_away();
    job.members.keep_leaving();
    if (takes_state_away) {  // It takes the job with it.
      job.stop();
      save_if_wanted();
    }
    return false;
  }
  if (job.members.leaving().empty() && !is_warm_ && chance(50)) {
    is_warm_ = true;  // The same work, and holders that get theirs during its first step.
    StatePlacement want = job.members.placed();
    for (Shard& shard : want) {
      for (const NodeId node : job.members.newcomers()) shard.holders.push_back({node, 0});
      std::sort(shard.holders.begin(), shard.holders.end());
    }
    auto workers = workers_;
    workers.insert(workers.end(), job.members.newcomers().begin(), job.members.newcomers().end());
    bring_up(workers, std::move(want), true);
    return true;
  }
  joined_.assign(job.members.newcomers().begin(), job.members.newcomers().end());
  for (const auto& [node, leaving] : job.members.leaving()) drained_.push_back(node);
  job.regroup();
  regroup(*workers);
  return true;
}

void CoordinatedJob::regroup(const std::vector<NodeId>& workers) {
  REQUIRE_FALSE(job.loop.is_decided());  // A step whose COMMIT is known is finished first.
  job.loop.rewind();
  REQUIRE(job.loop.planned_steps() == recorded_);
  bring_up(workers, placement_on(workers), false);
}

void CoordinatedJob::bring_up(const std::vector<NodeId>& workers, StatePlacement want,
                              bool is_late) {
  workers_ = workers;
  if (!is_late) is_warm_ = false;
  std::vector<DeviceSlot> devices;
  for (const NodeId node : workers) devices.push_back({node, 0});
  const EpochNumber generation = job.bring_up(devices, want, is_late);
  REQUIRE(generation > generation_);  // Never one again.
  generation_ = generation;
  ++lived_.layouts;
  for (const NodeId node : job.members.present()) {
    const auto own = std::find(workers.begin(), workers.end(), node);
    const int device = own == workers.end() ? -1 : static_cast<int>(own - workers.begin());
    tell(node, {Order::Kind::apply, generation, 0, device, shards_of(want, node), is_late});
  }
}

void CoordinatedJob::lose(NodeId node) {
  switch (job.kind_of_loss(node)) {
    case LossKind::none: return;
    case LossKind::leaver: job.members.gone(node); return end_if_all_gone();
    case LossKind::gathered: return;
    case LossKind::newcomer: return job.forget(node);
    case LossKind::member: break;
  }
  if (!job.bears_losses()) {
    job.members.gone(node);
    return end();
  }
  auto nodes = job.members.staying();
  nodes.erase(node);
  auto workers = find_layout(nodes, job.left_without(node));
  if (!workers && !job.members.leaving().empty()) {
    nodes = job.members.present();
    nodes.erase(node);
    workers = find_layout(nodes, job.left_without(node));
    if (workers) {
      for (const auto& [kept, leaving] : job.members.keep_asked())
        REQUIRE_FALSE(processes_[kept.index()].is_told);
      drained_.clear();
    }
  }
  if (!workers) {
    job.members.gone(node);
    return end();
  }
  ++lived_.losses;
  for (const NodeId other : job.members.newcomers()) joined_.push_back(other);
  std::erase(joined_, node);
  std::erase(drained_, node);
  lost_in_ = job.members.generation();
  saving_.reset();
  found_ = *workers;
  const Move move = job.lose(node);
  REQUIRE((move == Move::finish || move == Move::regroup));
  check_state();
  follow(move);
}

void CoordinatedJob::decide(std::int64_t step) {
  const RunningStep& running = job.loop.under_way().front();
  REQUIRE(running.votes.step() == step);
  const bool is_empty = running.is_empty();
  const auto verdict = job.decide(step, 0);
  REQUIRE(verdict.has_value() != is_empty);
  if (!verdict) return;
  const EpochNumber generation = job.members.generation();
  if (verdict->decision.commit) {
    REQUIRE(committed_.insert(step).second);  // No step twice.
    for (std::size_t device = 0; device < workers_.size(); ++device)
      REQUIRE(heard_.contains({generation, step, static_cast<int>(device)}));
  }
  REQUIRE(lost_in_ < generation);
  for (const NodeId node : workers_) tell(node, {Order::Kind::word, generation, step});
}

void CoordinatedJob::finish_step() {
  const RunningStep step = job.loop.finish();
  ++recorded_;
  ++lived_.steps;
  REQUIRE(step.votes.step() == recorded_);  // None twice, none left out.
  REQUIRE(job.loop.progress().step == recorded_);
  save_if_wanted();
  follow(job.finished());
}

void CoordinatedJob::hear(NodeId from, const Saying& saying) {
  if (const auto* fetched = std::get_if<Fetched>(&saying)) {
    if (!job.fetched(from, fetched->generation)) return;
    for (const NodeId node : job.members.present())
      tell(node, {Order::Kind::settle, fetched->generation});
  } else if (const auto* applied = std::get_if<Applied>(&saying)) {
    const CameUp what = job.applied(from, applied->generation);
    if (what == CameUp::nothing) return;
    check_state();
    if (what == CameUp::regrouped) {
      for (const NodeId node : std::exchange(drained_, {})) {
        job.forget(node);
        processes_[node.index()].is_alive = false;
        ++lived_.leaves;
      }
      job.members.place_newcomers(std::exchange(joined_, {}));
    }
    job.train();
    save_if_wanted();
    follow(job.started());
  } else if (const auto* prepared = std::get_if<engine::Prepared>(&saying)) {
    heard_.insert({prepared->epoch_number, prepared->step, prepared->device.value});
    if (job.prepared(*prepared)) decide(prepared->step);
  } else {
    if (job.device_finished(std::get<engine::DeviceReport>(saying))) follow(Move::finish);
  }
}

void CoordinatedJob::take_plan() {
  auto batch = std::make_shared<engine::PlannedBatch>();
  batch->batch = job.loop.planned_steps();
  batch->span = {0, batch->batch, batch->batch + 1};
  batch->iteration.epoch_number = asked_.front();
  asked_.pop_front();
  if (!chance(5)) {
    batch->iteration.samples.resize(1);
    batch->iteration.trained_tokens = 3;
  } else {
    batch->dropped.emplace_back().why.id = "bad " + std::to_string(batch->batch);
  }
  const bool idle = job.loop.is_idle();
  if (!job.planned(batch, 0)) return;
  REQUIRE(batch->iteration.epoch_number == job.members.generation());
  const bool is_empty = batch->iteration.samples.empty();
  if (!is_empty)
    for (const NodeId node : workers_)
      tell(node, {Order::Kind::plan, job.members.generation(), batch->batch + 1});
  if (idle && is_empty) follow(Move::close_empty);
  ask();
}

void CoordinatedJob::begin_job() {
  for (int i = 0; i < kPlaces; ++i)
    if (!job.members.is_there(NodeId{i})) job.members.gone(NodeId{i});
  const auto workers = find_layout(job.members.staying(), {});
  if (workers) return bring_up(*workers, placement_on(*workers), false);
  end();
}

void CoordinatedJob::end() {
  if (job.is_over()) return;
  job.end();
  end_if_all_gone();
}

void CoordinatedJob::end_if_all_gone() {
  const auto& all = job.members.all();
  if (std::none_of(all.begin(), all.end(), is_there)) job.ended();
}

void CoordinatedJob::save_if_wanted() {
  if (job.is_stopping()) {
    const bool nothing = job.loop.progress().step == 0 || job.members.placed().empty();
    if (nothing || saved_step_ == job.loop.progress().step) return end();
  } else if (!wants_save_) {
    return;
  }
  if (saving_ || !job.is_at_rest()) return;
  REQUIRE_FALSE(job.loop.is_decided());
  wants_save_ = false;
  saving_ = job.loop.progress().step;
}

void CoordinatedJob::saved() {
  saved_step_ = std::max(saved_step_, *std::exchange(saving_, std::nullopt));
  save_if_wanted();
  if (job.phase() == JobPhase::collecting && !saving_) end();
}

void CoordinatedJob::replace_head() {
  ++lived_.heads;
  const JobProgress progress = job.loop.progress_now(job.members.generation());
  Coordinator next;
  next.members = Membership(kPlaces);
  for (int i = 0; i < kPlaces; ++i) {
    const NodeId node{i};
    if (!job.members.takes_part(node)) {
      processes_[node.index()].is_alive = false;
      continue;
    }
    next.members.join(node, "host", i, {});
    next.members.ready(node, false);
    processes_[node.index()].orders.clear();
    processes_[node.index()].is_told = false;  // Which it does not tell this head.
  }
  next.begin(steps_behind(progress, steps_), progress.generation);
  next.take_over(generation_, job.members.placed(), {});
  job = std::move(next);
  asked_.clear();
  saving_.reset();
  joined_.clear();
  drained_.clear();
  wants_layout_ = is_warm_ = false;
  const auto workers = find_layout(job.members.staying(), job.members.placed());
  if (!workers) return end();
  regroup(*workers);
}

}  // namespace troupe::actors

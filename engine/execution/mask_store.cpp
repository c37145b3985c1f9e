#include "engine/execution/mask_store.hpp"

#include <pthread.h>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "engine/execution/packing.hpp"
#include "models/factory.hpp"
#include "models/family/registry.hpp"
#include "runtime/data/batches/background_thread.hpp"
#include "runtime/vocabulary/layer_work.hpp"
#include "runtime/vocabulary/model_config.hpp"

namespace troupe::engine {

kernels::GpuLists gpu_lists_of(const job::Job& job) {
  if (job.cluster.device != "cuda") return kernels::GpuLists::none;
  const ModuleConfig& llm = job.modules.back();
  if (llm.attention != AttentionRule::modality) return kernels::GpuLists::none;
  // Its layers have heads of one size. What heads of another want, their forward makes.
  for (const LayerWork& work : models::module_works(llm, job.modules))
    if (work.attention)
      return kernels::gpu_lists_for(models::to_torch(job.train.dtype), work.attention->head_dim);
  return kernels::GpuLists::none;
}

/// `batch` and `thrown` belong to who makes them, without the lock, and are written no more once
/// the part is made. The rest is under the store's lock, or never changes.
struct MaskStore::Part {
  enum class State : std::uint8_t { waiting, making, made };

  std::shared_ptr<const IterationPlan> iteration;
  const std::vector<std::int32_t>* samples = nullptr;  ///< Of the iteration.
  kernels::GpuLists lists = kernels::GpuLists::none;
  std::int64_t takers = 0;  ///< So many have not taken it yet.
  State state = State::waiting;
  std::optional<Result<models::PackedBatch>> batch;
  std::exception_ptr thrown;

  void make(const Maker& maker) noexcept {
    try {
      batch = maker(iteration->samples, *samples, lists);
    } catch (...) {
      thrown = std::current_exception();
    }
  }
};

MaskStore::MaskStore()
    : MaskStore([](auto samples, auto part, kernels::GpuLists lists) {
        return pack_text_shapes(AttentionRule::modality, samples, part, lists);
      }) {}

MaskStore::MaskStore(Maker maker) : maker_(std::move(maker)) {}

MaskStore::~MaskStore() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void MaskStore::expect(std::shared_ptr<const IterationPlan> iteration, const ParallelPlan& plan,
                       NodeId node, kernels::GpuLists lists) {
  const ModuleId llm = plan.model.llm();
  if (plan.model.at(llm).attention != AttentionRule::modality) return;
  // By their places in lists, so that no device's first part waits for all of another's.
  std::vector<std::pair<std::size_t, std::shared_ptr<Part>>> order;
  const std::lock_guard lock(mutex_);
  if (iterations_.size() == 2) forget(iterations_.front().get());
  for (std::size_t d = 0; d < std::min(plan.devices.size(), iteration->actions.size()); ++d) {
    if (plan.devices[d].node != node) continue;
    const std::vector<Action>& actions = iteration->actions[d];
    for (std::size_t place = 0; place < actions.size(); ++place) {
      const Action& action = actions[place];
      if (action.kind != ActionKind::forward) continue;
      const Stage& stage = plan.at(action.stage);
      const auto runs = std::ranges::count(stage.runs, llm, &LayerRun::module);
      if (runs == 0) continue;
      const Key key{iteration.get(), stage.replica, {action.microbatch, action.part}};
      auto& part = parts_[key];
      if (part == nullptr) {
        part = std::make_shared<Part>();
        part->iteration = iteration;
        part->samples = &samples_of(plan, *iteration, action.stage, action.microbatch, action.part);
        part->lists = lists;
        order.emplace_back(place, part);
      }
      part->takers += runs;
    }
  }
  iterations_.push_back(std::move(iteration));
  std::ranges::stable_sort(order, {}, [](const auto& entry) { return entry.first; });
  for (auto& [place, part] : order) queue_.push_back(std::move(part));
  if (!queue_.empty() && !thread_.joinable()) thread_ = std::thread([this] { serve(); });
  changed_.notify_all();
}

Result<models::PackedBatch> MaskStore::take(const IterationPlan& iteration,
                                            const ParallelPlan& plan, StageId stage, PartKey key) {
  std::unique_lock lock(mutex_);
  const auto found = parts_.find({&iteration, plan.at(stage).replica, key});
  if (found == parts_.end()) {
    lock.unlock();
    return pack_text_shapes(plan.model, iteration.samples,
                            samples_of(plan, iteration, stage, key.microbatch, key.part));
  }
  const std::shared_ptr<Part> part = found->second;
  if (--part->takers == 0) parts_.erase(found);
  if (part->state == Part::State::waiting) {
    part->state = Part::State::making;
    ++tally_.at_once;
    lock.unlock();
    part->make(maker_);
    lock.lock();
    part->state = Part::State::made;
    changed_.notify_all();
  }
  changed_.wait(lock, [&] { return part->state == Part::State::made; });
  lock.unlock();
  if (part->thrown) std::rethrow_exception(part->thrown);
  return *part->batch;
}

void MaskStore::drop() {
  const std::lock_guard lock(mutex_);
  while (!iterations_.empty()) forget(iterations_.front().get());
}

/// Who waits for one of its parts that is being made gets it all the same. REQUIRES: the lock.
void MaskStore::forget(const IterationPlan* iteration) {
  std::erase_if(parts_, [&](const auto& entry) { return entry.first.iteration == iteration; });
  std::erase_if(queue_, [&](const auto& part) { return part->iteration.get() == iteration; });
  std::erase_if(iterations_, [&](const auto& held) { return held.get() == iteration; });
}

MaskStore::Tally MaskStore::tally() const {
  const std::lock_guard lock(mutex_);
  Tally tally = tally_;
  tally.held = std::ssize(parts_);
  return tally;
}

void MaskStore::serve() {
  pthread_setname_np(pthread_self(), "masks");
  data::run_in_background();
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stops_ || !queue_.empty(); });
    if (stops_) return;
    std::shared_ptr<Part> part = std::move(queue_.front());
    queue_.pop_front();
    if (part->state != Part::State::waiting) continue;
    part->state = Part::State::making;
    lock.unlock();
    part->make(maker_);
    lock.lock();
    part->state = Part::State::made;
    ++tally_.ahead;
    part.reset();
    changed_.notify_all();
  }
}

}  // namespace troupe::engine

#include "runtime/data/batches/batch_loader.hpp"

#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <variant>

#include "runtime/data/batches/background_thread.hpp"
#include "runtime/data/batches/epoch_order.hpp"
#include "runtime/data/samples/sample_lengths.hpp"

namespace troupe::data {
namespace {

using Clock = std::chrono::steady_clock;
using Order = std::shared_ptr<const std::vector<std::int64_t>>;

/// What became of a wanted sample: content or lengths, as the request says.
using Outcome = std::variant<DecodeOutcome, MeasureOutcome>;

/// A batch between request and take. Guarded by the loader's mutex, `outcomes[i]` apart: while a
/// thread decodes sample i it alone writes there.
struct Job {
  BatchRequest request;
  Order order;
  std::function<void()> on_ready;
  std::vector<std::optional<Outcome>> outcomes;
  std::size_t next = 0;  // First sample that no thread has begun.
  std::size_t done = 0;
  int waiters = 0;  // Threads inside take().
  bool is_dropped = false;
  Bytes bytes;
  double decode_ms = 0;
  std::int64_t indexed = 0;

  bool is_complete() const { return done == outcomes.size(); }
};

Bytes bytes_of(const Outcome& outcome) {
  const auto* decoded = std::get_if<DecodeOutcome>(&outcome);
  const auto* sample = decoded != nullptr ? std::get_if<DecodedSample>(decoded) : nullptr;
  return sample != nullptr ? sample->bytes() : Bytes{sizeof(Outcome)};
}

Error cancelled() { return {Errc::cancelled, "the batch loader was cancelled", "", ""}; }

Error no_such_batch(std::int64_t batch) {
  return {Errc::invalid_argument,
          "batch " + std::to_string(batch) + " was not requested, or was taken already", "", ""};
}

}  // namespace

struct BatchLoader::Shared {
  using JobPointer = std::shared_ptr<Job>;
  /// A sample to decode: which batch, which of its samples.
  struct Task {
    JobPointer job;
    std::size_t sample = 0;
  };

  Shared(std::shared_ptr<const Dataset> data, DataOptions data_options, LoaderLimits loader_limits,
         std::shared_ptr<LengthIndex> lengths)
      : dataset(std::move(data)),
        options(std::move(data_options)),
        limits(loader_limits),
        known(std::move(lengths)) {}
  ~Shared() { stop(); }

  void run();
  void stop();
  void work_on(const Task& task);
  /// What the request asks of one of its samples.
  Outcome outcome_of(const BatchRequest& request, const WantedSample& wanted, const Record& record,
                     SampleLengths& lengths) const;
  std::optional<Task> next_task() const;
  Order order_of(const BatchRequest& request);
  JobPointer find(std::int64_t batch) const;
  void remove(const JobPointer& job);
  Status check_request(const BatchRequest& request) const;
  /// Of a place in an epoch's order; null: its source is not here.
  const Record* record_at(const BatchRequest& request, std::int64_t index) const;

  const std::shared_ptr<const Dataset> dataset;
  const DataOptions options;
  const LoaderLimits limits;
  const std::shared_ptr<LengthIndex> known;  // Null: there is none.

  mutable std::mutex mutex;  // Guards all below. No thread decodes or calls out while holding it.
  std::condition_variable work_changed;  // For loader threads: a job, room, a waiter, the end.
  std::condition_variable job_changed;   // For take(): a batch is complete or gone, the end.
  std::list<JobPointer> jobs;            // In the order of requests.
  std::map<std::int64_t, Order> orders;  // Of the last epochs asked for.
  Bytes held;
  std::int64_t measured_epoch = -1;  // Of the last batch that was measured.
  bool is_cancelled = false;
  std::mutex join_mutex;             // Two threads may cancel at once; one joins.
  std::vector<std::thread> threads;  // Last: they use everything above.
};

// Lengths take no memory worth a bound, and a plan waits for them. The oldest batch may always go
// on, and so may one that somebody waits for: with these two the bound on memory can never stop the
// batch that would free it.
std::optional<BatchLoader::Shared::Task> BatchLoader::Shared::next_task() const {
  for (const auto& job : jobs)
    if (job->request.measure && job->next < job->outcomes.size()) return Task{job, job->next};
  for (const auto& job : jobs) {
    if (job->next == job->outcomes.size()) continue;
    if (job == jobs.front() || job->waiters > 0 || held < limits.bytes_ahead)
      return Task{job, job->next};
  }
  return std::nullopt;
}

void BatchLoader::Shared::run() {
  pthread_setname_np(pthread_self(), "decode");
  run_in_background();
  std::unique_lock lock(mutex);
  while (true) {
    std::optional<Task> task;
    work_changed.wait(lock, [&] { return is_cancelled || (task = next_task()).has_value(); });
    if (is_cancelled) return;
    ++task->job->next;
    lock.unlock();
    work_on(*task);
    lock.lock();
  }
}

Outcome BatchLoader::Shared::outcome_of(const BatchRequest& request, const WantedSample& wanted,
                                        const Record& record, SampleLengths& lengths) const {
  if (request.measure) {
    auto measured = measure_sample(*dataset, record, options, *request.measure, lengths);
    if (auto* shape = std::get_if<SampleShape>(&measured)) shape->position = wanted.position;
    return measured;
  }
  auto decoded = decode_sample(*dataset, record, options, wanted.parts, known.get());
  if (auto* sample = std::get_if<DecodedSample>(&decoded)) sample->position = wanted.position;
  return decoded;
}

void BatchLoader::Shared::work_on(const Task& task) {
  const auto start = Clock::now();
  Job& job = *task.job;
  const WantedSample& wanted = job.request.samples[task.sample];
  const auto index = (*job.order)[static_cast<std::size_t>(wanted.position)];
  const Record& record = *record_at(job.request, index);
  SampleLengths lengths(known.get(), record.source);
  auto outcome = outcome_of(job.request, wanted, record, lengths);
  const Bytes size = bytes_of(outcome);
  const std::chrono::duration<double, std::milli> elapsed = Clock::now() - start;

  std::function<void()> on_ready;
  bool is_new_epoch = false;
  {
    const std::lock_guard lock(mutex);
    if (is_cancelled || job.is_dropped) return;
    job.outcomes[task.sample] = std::move(outcome);
    job.decode_ms += elapsed.count();
    job.bytes += size;
    held += size;
    if (job.request.measure && lengths.was_indexed()) ++job.indexed;
    ++job.done;
    if (!job.is_complete()) return;
    on_ready = std::move(job.on_ready);
    if (job.request.measure)
      is_new_epoch = std::exchange(measured_epoch, job.request.epoch) != job.request.epoch;
    job_changed.notify_all();
  }
  if (on_ready) on_ready();
  if (known == nullptr) return;
  // Nobody waits for this batch any more. In the next epoch other nodes measure what this one did.
  if (is_new_epoch)
    known->save();
  else
    known->maintain();
}

void BatchLoader::Shared::stop() {
  {
    const std::lock_guard lock(mutex);
    is_cancelled = true;
    jobs.clear();
    held = Bytes{};
    work_changed.notify_all();
    job_changed.notify_all();
  }
  const std::lock_guard join_lock(join_mutex);
  for (auto& thread : threads)
    if (thread.joinable()) thread.join();
}

Order BatchLoader::Shared::order_of(const BatchRequest& request) {
  constexpr std::size_t kKept = 2;  // Requests run from one epoch into the next.
  auto found = orders.find(request.epoch);
  if (found != orders.end()) return found->second;
  if (orders.size() >= kKept) orders.erase(orders.begin());
  auto order = std::make_shared<const std::vector<std::int64_t>>(
      request.epochs.newest_count() == 0 ? record_order(options, request.epoch, dataset->size())
                                         : request.epochs.order(options, request.epoch));
  orders.emplace(request.epoch, order);
  return order;
}

BatchLoader::Shared::JobPointer BatchLoader::Shared::find(std::int64_t batch) const {
  const auto found = std::find_if(jobs.begin(), jobs.end(), [batch](const JobPointer& job) {
    return job->request.batch == batch;
  });
  return found != jobs.end() ? *found : nullptr;
}

void BatchLoader::Shared::remove(const JobPointer& job) {
  held -= job->bytes;
  job->is_dropped = true;
  jobs.remove(job);
  work_changed.notify_all();
}

const Record* BatchLoader::Shared::record_at(const BatchRequest& request,
                                             std::int64_t index) const {
  if (dataset->is_whole()) return &(*dataset)[index];
  return dataset->find(index, request.epochs.stretches().back().records);
}

Status BatchLoader::Shared::check_request(const BatchRequest& request) const {
  const std::string name = "batch " + std::to_string(request.batch);
  if (is_cancelled) return cancelled();
  if (find(request.batch) != nullptr)
    return Error{Errc::invalid_argument, name + " was already requested", "", ""};
  if (request.epoch < 0)
    return Error{Errc::invalid_argument, name + " names a negative epoch", "", ""};
  const std::int64_t places =
      request.epochs.newest_count() == 0 ? dataset->size() : request.epochs.count(request.epoch);
  for (const auto& wanted : request.samples)
    if (wanted.position < 0 || wanted.position >= places)
      return Error{Errc::invalid_argument,
                   name + " wants position " + std::to_string(wanted.position) + " of " +
                       std::to_string(places),
                   "", ""};
  if (std::ssize(jobs) >= limits.batches_ahead)
    return Error{Errc::unavailable,
                 std::to_string(jobs.size()) + " batches are waiting to be taken, as many as may",
                 "", "take one before the next request"};
  return Done{};
}

Result<BatchLoader> BatchLoader::start(std::shared_ptr<const Dataset> dataset, DataOptions options,
                                       LoaderLimits limits, std::shared_ptr<LengthIndex> lengths) {
  if (limits.threads < 1 || limits.batches_ahead < 1 || limits.bytes_ahead < Bytes{1})
    return Error{Errc::invalid_argument,
                 "the loader's threads, batches_ahead and bytes_ahead must be 1 or more", "", ""};
  auto shared =
      std::make_unique<Shared>(std::move(dataset), std::move(options), limits, std::move(lengths));
  try {
    for (std::int32_t i = 0; i < limits.threads; ++i)
      shared->threads.emplace_back([raw = shared.get()] { raw->run(); });
  } catch (const std::system_error& fault) {
    return Error{Errc::unavailable, std::string("cannot start a loader thread: ") + fault.what(),
                 "", "ask for fewer threads"};
  }
  return BatchLoader(std::move(shared));
}

BatchLoader::BatchLoader(std::unique_ptr<Shared> shared) : shared_(std::move(shared)) {}
BatchLoader::BatchLoader(BatchLoader&&) noexcept = default;
BatchLoader& BatchLoader::operator=(BatchLoader&&) noexcept = default;
BatchLoader::~BatchLoader() = default;

Status BatchLoader::request(BatchRequest request, std::function<void()> on_ready) {
  {
    const std::lock_guard lock(shared_->mutex);
    if (Status fine = shared_->check_request(request); !fine) return fine;
    auto job = std::make_shared<Job>();
    job->order = shared_->order_of(request);
    for (const auto& wanted : request.samples)
      if (!shared_->record_at(request, (*job->order)[static_cast<std::size_t>(wanted.position)]))
        return Error{Errc::invalid_argument,
                     "batch " + std::to_string(request.batch) + " wants position " +
                         std::to_string(wanted.position) + " of a source that is not here",
                     "", ""};
    job->outcomes.resize(request.samples.size());
    job->request = std::move(request);
    shared_->jobs.push_back(job);
    if (!job->is_complete()) {
      job->on_ready = std::move(on_ready);
      on_ready = nullptr;
      shared_->work_changed.notify_all();
    }
  }
  if (on_ready) on_ready();
  return Done{};
}

Result<DecodedBatch> BatchLoader::take(std::int64_t batch, std::chrono::milliseconds timeout) {
  std::unique_lock lock(shared_->mutex);
  if (shared_->is_cancelled) return cancelled();
  const auto job = shared_->find(batch);
  if (job == nullptr) return no_such_batch(batch);
  ++job->waiters;
  shared_->work_changed.notify_all();
  const bool is_over = shared_->job_changed.wait_for(lock, timeout, [&] {
    return shared_->is_cancelled || job->is_dropped || job->is_complete();
  });
  --job->waiters;
  if (shared_->is_cancelled) return cancelled();
  if (job->is_dropped) return no_such_batch(batch);
  if (!is_over)
    return Error{Errc::timed_out,
                 "batch " + std::to_string(batch) + " is not decoded after " +
                     std::to_string(timeout.count()) + " ms: " + std::to_string(job->done) +
                     " of " + std::to_string(job->outcomes.size()) + " samples are",
                 "", ""};
  shared_->remove(job);
  DecodedBatch decoded{batch, job->request.epoch, {}, {}, job->decode_ms, job->indexed};
  for (auto& outcome : job->outcomes)
    if (job->request.measure)
      decoded.lengths.push_back(std::get<MeasureOutcome>(std::move(*outcome)));
    else
      decoded.samples.push_back(std::get<DecodeOutcome>(std::move(*outcome)));
  return decoded;
}

void BatchLoader::drop(std::int64_t batch) {
  const std::lock_guard lock(shared_->mutex);
  if (const auto job = shared_->find(batch)) {
    shared_->remove(job);
    shared_->job_changed.notify_all();
  }
}

void BatchLoader::cancel() { shared_->stop(); }

Bytes BatchLoader::bytes_held() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->held;
}

}  // namespace troupe::data

#include "app/train_reference.hpp"

#include <ATen/Parallel.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <optional>
#include <thread>

#include "actors/link/heartbeat.hpp"
#include "actors/link/system.hpp"
#include "app/run_record.hpp"
#include "app/signals.hpp"
#include "app/terminal.hpp"
#include "app/version.hpp"
#include "engine/reference/reference.hpp"
#include "runtime/data/batches/epoch_order.hpp"
#include "runtime/observe/step_reporter.hpp"
#include "runtime/vocabulary/user_code.hpp"

namespace troupe::app {

int train_by_reference(const Opened& opened, const std::string& microbatches) {
  observe::Console console(observe::detect_console(1));
  auto run = open_run(opened, console, "reference");
  if (!run.ok()) return report(run.error());
  const auto& [folder, logger, log_file] = run.value();
  at::set_num_threads(opened.setup.job.cluster.threads_per_device);
  std::atomic<bool> stop{false}, save{false}, done{false};
  int signal = 0;
  std::atomic<std::int64_t> step{opened.resume.progress.step + 1};
  std::atomic<std::int64_t> saved{opened.resume.progress.step};
  const double stop_timeout_s = opened.setup.job.cluster.stop_timeout_s;
  const auto stopped = [&] {
    return "before step " + std::to_string(step) + " was done; " +
           (saved > 0
                ? "step " + std::to_string(saved) + " is saved: the same command goes on from there"
                : std::string("there is no checkpoint to resume from"));
  };
  std::thread watcher([&] {
    while (!done && !stop) {
      const int heard = wait_for_signal({SIGUSR1}, std::chrono::milliseconds(50));
      if (heard == SIGUSR1) save = true;
      if (heard == 0 || !ends_process(heard)) continue;
      signal = heard;
      stop = true;
    }
    // A step may take long, and nothing of it is kept; what was done before it is saved. A second
    // signal ends the process at once.
    const auto told = std::chrono::steady_clock::now();
    while (!done && std::chrono::steady_clock::now() < told + actors::seconds(stop_timeout_s))
      if (ends_process(wait_for_signal({}, std::chrono::milliseconds(20))) &&
          std::chrono::steady_clock::now() > told + kSameSignal)
        break;
    if (done) return;
    const int code = saved > 0 ? kResumable : 128 + signal;
    record_end(folder->path(), code, "stopped " + stopped());
    leave_at_latest(code, kLastWordsTime);
    report_signal(signal, stopped());
    leave(code);
  });
  std::optional<observe::StepReporter> reporter;
  engine::ReferenceOptions reference;
  reference.stop = &stop;
  reference.save = &save;
  reference.resume = opened.resume;
  reference.data = engine::data_order(opened.setup.job, opened.data, opened.resume);
  reference.build = build_id();
  reference.resolved_job = opened.resolved;
  reference.on_save = [&](std::int64_t at, const Result<std::vector<Error>>& left_behind) {
    if (!left_behind.ok())
      return logger.warning("no checkpoint of step " + std::to_string(at) + ": " +
                            to_string(left_behind.error()));
    for (const Error& error : left_behind.value()) logger.warning(to_string(error));
    saved = at;
    if (opened.endpoint) opened.endpoint->show_checkpoint(std::chrono::system_clock::now());
    logger.info("step " + std::to_string(at) + " saved");
  };
  const auto& train = opened.setup.job.train;
  const auto per_epoch = engine::steps_per_epoch(reference.data);
  reference.on_step = [&](const observe::StepMetrics& metrics, std::int64_t total_steps) {
    if (!reporter)
      reporter.emplace(console, logger,
                       observe::TrainingGoal{total_steps, train.duration.tokens(), per_epoch,
                                             opened.resume.progress.tokens});
    reporter->report(metrics);
    step = metrics.step + 1;
  };
  Status trained = Done{};
  try {
    if (microbatches.empty()) {
      trained = engine::train_reference(opened.setup, *folder, reference);
    } else {
      std::optional<std::filesystem::path> recorded;
      if (microbatches != "plan") recorded = microbatches;
      trained = engine::train_plan_reference(opened.setup, recorded, *folder, reference);
    }
  } catch (const UserFault& fault) {  // Past the watcher, which nobody had joined, it would abort.
    trained = fault.error();
  }
  done = true;
  watcher.join();
  const EndOnSignal guard("");  // Who reads the last lines may have stopped.
  if (reporter) reporter->finish();
  const auto end = [&](int code, const std::string& message) {
    if (code != kDone) log_file.error(message);
    record_end(folder->path(), code, message);
    return code;
  };
  if (stop) {
    const int code = saved > 0 ? kResumable : 128 + signal;
    leave_at_latest(code, kLeaveTime);
    end(code, "stopped by " + actors::signal_name(signal) + " " + stopped());
    report_signal(signal, stopped());
    return code;
  }
  if (!trained.ok()) return end(report(trained.error()), to_string(trained.error()));
  end(kDone, "");
  logger.info("done: " + folder->path().string());
  return kDone;
}

}  // namespace troupe::app

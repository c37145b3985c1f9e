// `troupe check`: whether the layers of a job's model keep what stages promise.

#include <ATen/Parallel.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <future>
#include <iomanip>
#include <iostream>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "actors/link/heartbeat.hpp"
#include "app/commands.hpp"
#include "app/doctor/probes.hpp"
#include "app/planning.hpp"
#include "app/stalled_read.hpp"
#include "app/terminal.hpp"
#include "app/text_table.hpp"
#include "engine/contract/contract.hpp"
#include "runtime/job/load_job.hpp"
#include "runtime/plugins/user_calls.hpp"
#include "runtime/vocabulary/joined.hpp"

namespace troupe::app {

namespace {

using Verdicts = Result<std::vector<engine::StageVerdict>>;

struct Options {
  JobArguments job;
  engine::ContractOptions contract;
  double timeout_s = 60;
  bool json = false;
};

/// What runs now, and since when.
struct Under {
  std::mutex mutex;
  std::string stage, promise;
  std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();
};

Json json_of(const std::vector<engine::StageVerdict>& verdicts) {
  Json list = Json::array();
  for (const auto& verdict : verdicts) {
    Json breaches = Json::array();
    for (const auto& breach : verdict.breaches)
      breaches.push_back(
          {{"promise", breach.promise}, {"found", breach.found}, {"fix", breach.fix}});
    list.push_back({{"stage", verdict.stage},
                    {"kept", verdict.kept},
                    {"breaches", breaches},
                    {"seconds", verdict.seconds},
                    {"kind", verdict.kind},
                    {"stage_kind", verdict.stage_kind},
                    {"alike", verdict.alike},
                    {"not_tried", verdict.not_tried}});
  }
  return {{"stages", list}};
}

std::string tenths(double value) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << value;
  return text.str();
}

int show(const std::vector<engine::StageVerdict>& verdicts, bool json) {
  const bool all_kept = std::ranges::all_of(verdicts, &engine::StageVerdict::keeps_all);
  if (json) {
    std::cout << json_of(verdicts).dump(2) << '\n';
    return all_kept ? kDone : kFailed;
  }
  const bool are_layers = !verdicts.empty() && verdicts.front().alike > 0;
  std::vector<std::vector<std::string>> rows{
      {"stage", are_layers ? "stands for" : "", "seconds", "promises kept"}};
  for (const auto& verdict : verdicts)
    rows.push_back({verdict.stage_kind.empty()
                        ? verdict.stage
                        : verdict.stage + " by stage kind " + verdict.stage_kind,
                    are_layers ? std::to_string(verdict.alike) + " of " + verdict.kind : "",
                    tenths(verdict.seconds), joined(verdict.kept)});
  print_table(rows, {0, 1, 3}, 3);
  for (const auto& verdict : verdicts) {
    for (const auto& breach : verdict.breaches)
      std::cout << verdict.stage << ": " << breach.promise << ": " << breach.found
                << "\n  fix: look at " << breach.fix << '\n';
    if (!verdict.not_tried.empty())
      std::cout << verdict.stage << ": not tried: " << verdict.not_tried << '\n';
  }
  std::cout << (all_kept ? "All promises are kept.\n" : "Not all promises are kept.\n");
  return all_kept ? kDone : kFailed;
}

/// A call that never returns keeps its thread, and with it the process: what was found is told, and
/// the process ends at once.
[[noreturn]] void give_up(const Under& under, double timeout_s) {
  const auto call = plugins::oldest_user_call();
  const int code = report({Errc::timed_out,
                           (under.promise.empty() ? "before the first stage" : under.promise) +
                               ": no answer within " + actors::seconds_text(timeout_s) +
                               (call ? "; " + call->function + " has not returned" : ""),
                           !under.stage.empty() ? under.stage
                           : call               ? "the model"
                                                : "the data",
                           "end the call, or allow more time with --timeout"});
  std::cout.flush();
  std::cerr.flush();
  _exit(code);
}

int check(const Options& options) {
  auto read = read_job_on_paper(options.job, options.contract.bench.has_own_data);
  if (!read.ok()) return report(read.error());
  const job::Job& job = read.value().job;
  const EndOnStalledRead reads(job.data.read_timeout_s);
  const auto under = std::make_shared<Under>();
  auto contract = options.contract;
  contract.memory = probe_memory().left();
  contract.on_begin = [under](const std::string& stage, const std::string& promise) {
    const std::lock_guard lock(under->mutex);
    under->stage = stage;
    under->promise = promise;
    under->since = std::chrono::steady_clock::now();
  };
  // What it throws, as `holds` of a stage kind may, comes out of the future.
  std::packaged_task<Verdicts()> task([job, contract] {
    at::set_num_threads(job.cluster.threads_per_device);  // Bits follow it.
    return engine::check_contract(job, contract);
  });
  auto found = task.get_future();
  std::thread(std::move(task)).detach();
  while (found.wait_for(std::chrono::milliseconds(50)) != std::future_status::ready) {
    const std::lock_guard lock(under->mutex);
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - under->since;
    if (waited.count() > options.timeout_s) give_up(*under, options.timeout_s);
  }
  const Verdicts all = found.get();
  return all.ok() ? show(all.value(), options.json) : report(all.error());
}

}  // namespace

void add_check(Commands& commands) {
  auto options = std::make_shared<Options>();
  auto* command = commands.add(
      "check", "Hold a model's layers against what stages promise: gradients, bits, memory",
      [options] { return check(*options); });
  options->job.add_to(*command);
  auto& contract = options->contract;
  command->add_option("--module", contract.module, "The stages of this module alone");
  command->add_flag(
      "--layers", contract.bench.is_by_layer,
      "One of the layers that are alike by itself: for models too large to be tried whole");
  command->add_flag("--data", contract.bench.has_own_data,
                    "On samples of the job's data, the shortest (default: made ones)");
  command
      ->add_option("--samples", contract.bench.samples,
                   "So many samples, of the job's data at most (default: 4)")
      ->check(CLI::Range(2, 64));
  command
      ->add_option("--timeout", options->timeout_s,
                   "Seconds that one promise of a stage may take (default: 60)")
      ->check(CLI::Range(0.1, 1e6));
  command->add_flag("--json", options->json, "What was found, for programs");
}

}  // namespace troupe::app

// `troupe doctor`: whether this machine can run Troupe well, or a job.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "app/commands.hpp"
#include "app/doctor/asked.hpp"
#include "app/doctor/checks.hpp"
#include "app/doctor/probes.hpp"
#include "app/doctor_job.hpp"
#include "app/signals.hpp"
#include "app/terminal.hpp"
#include "app/text_table.hpp"
#include "app/version.hpp"
#include "kernels/gpu_query.hpp"
#include "runtime/plugins/user_calls.hpp"
#include "runtime/vocabulary/printable.hpp"
#include "transport/registry.hpp"
#include "transport/ucx/transport_lists.hpp"

namespace troupe::app {

namespace {

using Clock = std::chrono::steady_clock;
using Job = std::optional<job::Job>;

struct Options {
  JobArguments job;
  std::string folder = ".";
  double timeout_s = 10;
  bool json = false;
};

/// A check under way: its question was asked, and its answer is judged when it is there.
struct Question {
  std::string name;
  Level unanswered;  ///< What no answer means.
  std::function<std::optional<std::vector<Finding>>(Clock::time_point)> findings;
};

/// `judge` makes a finding, or several, of what `ask` says.
template <class Ask, class Judge>
Question question(const std::string& name, Level unanswered, Ask ask, Judge judge) {
  using Facts = decltype(ask());
  auto asked = std::make_shared<Asked<Facts>>(std::move(ask));
  return {name, unanswered,
          [asked, judge](Clock::time_point deadline) -> std::optional<std::vector<Finding>> {
            const auto facts = asked->answer(deadline);
            if (!facts) return std::nullopt;
            if constexpr (std::is_same_v<decltype(judge(*facts)), Finding>)
              return std::vector<Finding>{judge(*facts)};
            else
              return judge(*facts);
          }};
}

/// For questions whose answer is a finding.
Finding as_it_is(const Finding& finding) { return finding; }

std::string variable(const char* name, const std::string& otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : value;
}

BuildFacts build_facts() {
  const BuildParts parts = build_parts();
  std::string transports;
  for (const auto name : transport::transport_names())
    transports += (transports.empty() ? "" : ", ") + std::string(name);
  return {build_id(),       parts.type, parts.sanitizers,   parts.compiler,
          libraries_text(), transports, kernels::has_cuda()};
}

/// Of the job's processes those on this machine, with its head.
std::int64_t processes_here(const Job& job) {
  return job && job->cluster.local_nodes > 0 ? job->cluster.local_nodes + 1 : 0;
}

Finding judge_network(UcxFacts ucx, NetworkFacts facts, const Job& job) {
  facts.ways = std::move(ucx.ways);
  facts.wanted = variable("UCX_NET_DEVICES", "");
  facts.wanted_by = "UCX_NET_DEVICES";
  if (facts.wanted.empty() && job) {
    facts.wanted = job->cluster.data_interface;
    facts.wanted_by = "cluster.data_interface";
  }
  facts.is_one_machine = !job || job->cluster.local_nodes == job->cluster.nodes;
  return check_network(facts);
}

Finding judge_shared_memory(SharedMemoryFacts facts, const Job& job) {
  facts.processes = processes_here(job);
  const auto lists = transport::divide_transports(variable("UCX_TLS", "all"));
  facts.is_wanted = !lists.ok() || !lists.value().shared.empty();
  return check_shared_memory(facts);
}

/// What the machine is asked, in the order of the answers.
std::vector<Question> ask_machine(const Options& options, const Job& job,
                                  Clock::time_point deadline) {
  const std::string ucx = build_parts().ucx;
  std::vector<Question> all;
  const auto add = [&](const char* name, Level unanswered, auto ask, auto judge) {
    all.push_back(question(name, unanswered, std::move(ask), std::move(judge)));
  };
  add("build", Level::warning, build_facts, check_build);
  add(
      "gpu", Level::warning, [] { return probe_gpus(); }, check_gpu);
  add(
      "nccl", Level::warning, [] { return probe_nccl(); }, check_nccl);
  add(
      "nccl rows", Level::warning, [] { return std::pair(probe_nccl(), probe_gpus()); },
      [](const auto& both) { return check_nccl_rows(both.first, both.second); });
  add(
      "ucx", Level::problem, [ucx] { return probe_ucx(ucx); }, check_ucx);
  add(
      "door", Level::problem, [deadline] { return probe_door(deadline); }, check_door);
  add(
      "host name", Level::warning, [] { return probe_host_name(); }, check_host_name);
  add(
      "network", Level::problem, [ucx] { return std::pair(probe_ucx(ucx), probe_interfaces()); },
      [job](const auto& both) { return judge_network(both.first, both.second, job); });
  add(
      "clock", Level::warning, [] { return probe_clock(); }, check_clock);
  if (!job)
    add(
        "disk", Level::problem, [folder = options.folder] { return probe_folder(folder); },
        [](const FolderFacts& facts) { return check_folder("disk", facts); });
  add(
      "shared memory", Level::problem, [] { return probe_shared_memory(); },
      [job](const SharedMemoryFacts& facts) { return judge_shared_memory(facts, job); });
  add(
      "limits", Level::warning, [] { return probe_limits(); },
      [job](LimitFacts facts) {
        facts.nodes = job ? job->cluster.nodes : 0;
        return check_limits(facts);
      });
  add(
      "memory", Level::warning, [] { return probe_memory(); }, check_memory);
  add(
      "cores", Level::warning, [] { return probe_cores(); },
      [job](CoreFacts facts) {
        if (job && job->cluster.device == "cpu")
          facts.wanted = std::int64_t{job->cluster.local_nodes} * job->cluster.devices_per_node *
                         job->cluster.threads_per_device;
        return check_cores(facts);
      });
  add(
      "threads", Level::warning, [] { return probe_threads(); }, check_threads);
  add(
      "container", Level::warning, [] { return probe_container(); }, check_container);
  return all;
}

/// What a job needs beside. REQUIRES: it could be read.
void ask_for_job(const job::JobReading& reading, const std::string& file,
                 std::vector<Question>& all) {
  const job::Job& job = reading.loaded.job;
  const auto add = [&](const char* name, auto ask, auto judge) {
    all.push_back(question(name, Level::problem, std::move(ask), std::move(judge)));
  };
  add(
      "job", [reading, file] { return check_job(reading, file); }, as_it_is);
  add(
      "model", [reading, file] { return check_fit(reading.loaded, file); },
      [](const std::vector<Finding>& findings) { return findings; });
  add(
      "data", [job] { return check_data(job); }, as_it_is);
  const auto add_folder = [&](const char* name, const std::filesystem::path& folder) {
    add(
        name, [job, folder, name] { return check_is_free(name, job, probe_folder(folder)); },
        as_it_is);
  };
  add_folder("run folder", job.job.run_dir);
  if (!job.checkpoint.dir.empty()) add_folder("checkpoints", job.checkpoint.dir);
  add(
      "port", [job] { return check_ports(job); }, as_it_is);
  add(
      "key", [job] { return check_key(job); }, as_it_is);
}

void print(const std::vector<Finding>& findings, const std::string& subject) {
  const bool coloured = stdout_has_colours();
  const auto colour = [&](Level level) {
    return !coloured                 ? ""
           : level == Level::ok      ? "\x1b[32m"
           : level == Level::problem ? "\x1b[31m"
                                     : "\x1b[33m";
  };
  const char* const end = coloured ? "\x1b[0m" : "";
  std::size_t width = 0;
  for (const Finding& finding : findings) width = std::max(width, finding.name.size());
  const std::size_t indent = 2 + 7 + 2 + width + 2,
                    columns = std::max<std::size_t>(terminal_width(), indent + 30);
  std::cout << verdict(findings, subject) << "\n\n";
  for (const Finding& finding : findings) {
    std::cout << "  " << colour(finding.level) << padded(std::string(to_string(finding.level)), 7)
              << end << "  " << padded(finding.name, width) << "  "
              << wrapped(printable(finding.found), indent, columns) << '\n';
    if (!finding.fix.empty())
      std::cout << std::string(indent, ' ')
                << wrapped("fix: " + printable(finding.fix), indent, columns) << '\n';
  }
}

void print_json(const std::vector<Finding>& findings, const std::string& job) {
  nlohmann::ordered_json json{{"build", build_id()}};
  json["job"] = job.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(job);
  json["can_run"] = count_of(findings, Level::problem) == 0;
  json["problems"] = count_of(findings, Level::problem);
  json["warnings"] = count_of(findings, Level::warning);
  json["checks"] = nlohmann::ordered_json::array();
  for (const Finding& finding : findings)
    json["checks"].push_back({{"name", finding.name},
                              {"level", to_string(finding.level)},
                              {"found", finding.found},
                              {"fix", finding.fix}});
  std::cout << json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
}

Clock::time_point deadline_of(const Options& options) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(
                            std::chrono::duration<double>(options.timeout_s));
}

struct Findings {
  std::vector<Finding> all;
  bool all_answered = true;
};

/// What was not answered; a plug-in of the job's may be why.
Finding unanswered(const std::string& name, double limit_s, Level level) {
  Finding finding = no_answer(name, limit_s, level);
  if (const auto call = plugins::oldest_user_call()) {
    finding.found += "; meanwhile " + call->function + " has not returned";
    finding.fix = "look for a loop without an end in it; else " + finding.fix;
  }
  return finding;
}

/// All that could be found out: of the machine where the job file cannot be read.
Findings examine(const Options& options) {
  Findings findings;
  const std::string& file = options.job.file;
  std::optional<job::JobReading> reading;
  if (!file.empty()) {
    Asked<job::JobReading> asked(
        [file, words = options.job.all()] { return job::read_job(file, words); });
    reading = asked.answer(deadline_of(options));
    if (!reading)
      findings.all.push_back(unanswered("job", options.timeout_s, Level::problem));
    else if (!reading->ok())
      findings.all.push_back(check_job(*reading, file));
    findings.all_answered = reading.has_value();
  }
  const auto deadline = deadline_of(options);
  const bool is_read = reading && reading->ok();
  auto questions = ask_machine(options, is_read ? Job(reading->loaded.job) : Job(), deadline);
  if (is_read) ask_for_job(*reading, file, questions);
  for (const Question& each : questions) {
    const auto found = each.findings(deadline);
    if (found)
      findings.all.insert(findings.all.end(), found->begin(), found->end());
    else
      findings.all.push_back(unanswered(each.name, options.timeout_s, each.unanswered));
    findings.all_answered = findings.all_answered && found.has_value();
  }
  return findings;
}

/// A job file that is wrong has the exit code that it has everywhere.
int code_of(const std::vector<Finding>& findings) {
  if (count_of(findings, Level::problem) == 0) return kDone;
  const auto job = std::ranges::find(findings, "job", &Finding::name);
  const bool is_wrong = job != findings.end() && job->level == Level::problem;
  return is_wrong ? kUsage : kFailed;
}

int doctor(const Options& options) {
  const Findings findings = examine(options);
  const std::string& file = options.job.file;
  if (options.json)
    print_json(findings.all, file);
  else
    print(findings.all, file.empty() ? "Troupe" : file);
  const int code = code_of(findings.all);
  if (!findings.all_answered) leave(code);  // Whoever was asked may hold its thread for ever.
  return code;
}

}  // namespace

void add_doctor(Commands& commands) {
  auto options = std::make_shared<Options>();
  auto* command = commands.add("doctor", "Whether this machine can run Troupe well, or a job",
                               [options] { return doctor(*options); });
  options->job.add_to(*command);
  command->get_option("JOB")->required(false);
  command->add_option("--folder", options->folder, "Where runs would be written, without a job")
      ->type_name("DIR")
      ->capture_default_str();
  command->add_option("--timeout", options->timeout_s, "Seconds that any check may take")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print one JSON object instead");
}

}  // namespace troupe::app

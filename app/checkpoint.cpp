// `troupe checkpoint`: what a run has saved, and whether it is whole.

#include "runtime/state/checkpoint.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>

#include "app/commands.hpp"
#include "app/read_limits.hpp"
#include "app/run_argument.hpp"
#include "app/terminal.hpp"
#include "engine/iteration/data_warnings.hpp"
#include "runtime/data/batches/epochs.hpp"
#include "runtime/files/look_up.hpp"
#include "runtime/files/read_stream.hpp"
#include "runtime/job/run_checkpoints.hpp"
#include "runtime/state/incomplete_save.hpp"
#include "runtime/vocabulary/model_words.hpp"
#include "runtime/vocabulary/printable.hpp"
#include "scheduler/layout/layout_request.hpp"

namespace troupe::app {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct Options {
  std::string run;
  std::optional<std::int64_t> step;
  ReadTimeout timeout;
  bool json = false;
};

/// Where a run's checkpoints are; the folder itself where it is one of checkpoints.
Result<fs::path> folder_of(const fs::path& run) {
  const bool has_saves =
      !state::checkpoints_in(run).empty() || !state::incomplete_saves_in(run).empty();
  if (!files::is_there(run / "resolved.toml") && has_saves) return run;
  if (auto there = check_run_folder(run); !there.ok()) return std::move(there).error();
  return job::checkpoints_of_run(run);
}

/// The checkpoints that are asked about, oldest first.
Result<std::map<std::int64_t, fs::path>> chosen(const Options& options) {
  const auto folder = folder_of(options.run);
  if (!folder.ok()) return folder.error();
  auto all = state::checkpoints_in(folder.value());
  if (options.step && !all.contains(*options.step)) {
    if (auto parts = state::why_only_parts(folder.value(), options.step)) return *std::move(parts);
    return Error{Errc::not_found, "no checkpoint of step " + std::to_string(*options.step),
                 folder.value().string(), "troupe checkpoint list names those that are there"};
  }
  if (options.step) return std::map<std::int64_t, fs::path>{*all.find(*options.step)};
  return all;
}

std::string size_text(std::int64_t bytes) {
  return scheduler::byte_text(static_cast<double>(bytes));
}

Json json_of(const state::Checkpoint& checkpoint) {
  const auto& manifest = checkpoint.manifest();
  return {{"step", manifest.progress.step},
          {"folder", checkpoint.folder().string()},
          {"written_at", manifest.written_at},
          {"bytes", manifest.bytes()},
          {"files", manifest.files.size()},
          {"dtype", dtype_word(manifest.dtype)},
          {"job", manifest.job},
          {"build", manifest.build},
          {"generation", manifest.progress.generation},
          {"tokens", manifest.progress.tokens}};
}

Json json_of(const Error& error) {
  return {{"where", error.where}, {"error", error.message}, {"fix", error.fix}};
}

/// A row for each save of a part of the model, which nothing goes on from.
void list_incomplete(const fs::path& folder, Json& json, std::ostringstream& text) {
  for (const auto& [step, path] : state::incomplete_saves_in(folder)) {
    const Error why = state::why_incomplete(path);
    json.push_back({{"step", step}, {"incomplete", json_of(why)}});
    text << std::setw(7) << step << "  incomplete: " << printable(why.where + ": " + why.message)
         << "\n";
  }
}

int list(const Options& options) {
  const auto all = chosen(options);
  if (!all.ok()) return report(all.error());
  Json json = Json::array();
  std::ostringstream text;
  text << "   step  written               size      files  dtype\n";
  for (const auto& [step, folder] : all.value()) {
    const auto checkpoint = state::Checkpoint::open(folder);
    text << std::setw(7) << step << "  ";
    if (!checkpoint.ok()) {
      json.push_back({{"step", step}, {"damaged", json_of(checkpoint.error())}});
      text << "damaged: " << printable(checkpoint.error().where + ": " + checkpoint.error().message)
           << "\n";
      continue;
    }
    const auto& manifest = checkpoint.value().manifest();
    json.push_back(json_of(checkpoint.value()));
    text << std::left << std::setw(20) << printable(manifest.written_at) << "  " << std::setw(8)
         << size_text(manifest.bytes()) << std::right << "  " << std::setw(5)
         << manifest.files.size() << "  " << dtype_word(manifest.dtype) << "\n";
  }
  list_incomplete(folder_of(options.run).value(), json, text);
  if (options.json)
    std::cout << json.dump(2) << "\n";
  else if (json.empty())
    std::cout << "no checkpoint yet\n";
  else
    std::cout << text.str();
  return kDone;
}

/// Per module: parameters, trained ones, and bytes of what was saved of them.
struct ModuleSum {
  std::int64_t parameters = 0, trained = 0;
};

std::map<std::string, ModuleSum> sums(const state::CheckpointManifest& manifest) {
  std::map<std::string, ModuleSum> modules;
  for (const auto& parameter : manifest.parameters) {
    const std::int64_t elements = elements_of(whole_box(parameter.shape));
    ModuleSum& sum = modules[parameter.name.substr(0, parameter.name.find('.'))];
    sum.parameters += elements;
    if (parameter.trains) sum.trained += elements;
  }
  return modules;
}

int show(const Options& options) {
  const auto all = chosen(options);
  if (!all.ok()) return report(all.error());
  // Parts of a newer state than any that is whole.
  const auto parts =
      options.step ? std::nullopt : state::why_only_parts(folder_of(options.run).value());
  if (all.value().empty())
    return report(parts ? *parts : Error{Errc::not_found, "no checkpoint yet", options.run, ""});
  const auto checkpoint = state::Checkpoint::open(all.value().rbegin()->second);
  if (!checkpoint.ok()) return report(checkpoint.error());
  const auto& manifest = checkpoint.value().manifest();
  const JobProgress& progress = manifest.progress;
  const DataOrder& data = progress.data;
  const data::Epochs epochs =
      data.epochs.empty() ? data::Epochs(data.records) : data::Epochs(data.epochs);
  // The epoch of the last finished step's successor.
  const std::int64_t epoch = epochs.span(progress.step, data.batch_size).epoch;
  const std::int64_t batches = data::batches_per_epoch(epochs.count(epoch), data.batch_size);
  const std::int64_t batch = progress.step - epochs.batches_before(epoch, data.batch_size);
  if (options.json) {
    Json json = json_of(checkpoint.value());
    for (const auto& [name, sum] : sums(manifest))
      json["modules"][name] = {{"parameters", sum.parameters}, {"trained", sum.trained}};
    json["epoch"] = epoch + 1;
    json["batch_of_epoch"] = batch;
    json["skipped_steps"] = progress.skipped.count;
    json["bad_samples"] = progress.bad.size();
    for (const auto& file : manifest.files)
      json["file_list"].push_back(
          {{"name", file.name}, {"bytes", file.bytes}, {"sha256", file.sha256}});
    if (parts) json["incomplete"] = json_of(*parts);
    std::cout << json.dump(2) << "\n";
    return kDone;
  }
  const std::string origin =
      manifest.job + ", written " + manifest.written_at + " by " + manifest.build;
  std::cout << printable(checkpoint.value().folder().string()) << "\n"
            << "  job         " << printable(origin) << "\n"
            << "  progress    step " << progress.step << ", " << with_unit(progress.tokens)
            << " llm tokens, epoch " << epoch + 1 << " of the data, " << batch << " of its "
            << batches << " batches\n"
            << "              " << progress.skipped.count << " skipped steps, "
            << progress.bad.size() << " bad samples, generation " << progress.generation << "\n"
            << "  state       " << dtype_word(manifest.dtype) << ", " << size_text(manifest.bytes())
            << " in " << manifest.files.size() << " files\n";
  for (const auto& [name, sum] : sums(manifest))
    std::cout << "  " << std::left << std::setw(20) << printable(name) << std::right
              << with_unit(sum.parameters) << " parameters" << (sum.trained == 0 ? ", frozen" : "")
              << "\n";
  if (parts) std::cout << "  newer       " << printable(engine::warning_text(*parts)) << "\n";
  return kDone;
}

/// The row of a newer state than any whole one, of which only parts are saved; none: there is none.
std::optional<Error> verify_parts(const Options& options, Json& json) {
  const fs::path folder = folder_of(options.run).value();
  auto parts = state::why_only_parts(folder);
  if (!parts) return parts;
  const std::int64_t step = state::incomplete_saves_in(folder).back().first;
  json.push_back({{"step", step}, {"whole", false}, {"incomplete", json_of(*parts)}});
  if (!options.json)
    std::cout << "step " << step << ": " << printable(engine::warning_text(*parts)) << "\n";
  return parts;
}

int verify(const Options& options) {
  const auto all = chosen(options);
  if (!all.ok()) return report(all.error());
  Json json = Json::array();
  int exit_code = kDone;
  for (const auto& [step, folder] : all.value()) {
    const auto checkpoint = state::Checkpoint::open(folder);
    const Status whole = checkpoint.ok() ? checkpoint.value().verify() : Status(checkpoint.error());
    json.push_back({{"step", step}, {"whole", whole.ok()}});
    if (!whole.ok()) {
      exit_code = troupe::exit_code({Errc::bad_data, "", "", ""});
      json.back()["error"] = json_of(whole.error());
    }
    if (options.json) continue;
    if (whole.ok())
      std::cout << "step " << step << ": whole, "
                << size_text(checkpoint.value().manifest().bytes()) << "\n";
    else
      std::cout << "step " << step << ": " << to_string(whole.error()) << "\n";
  }
  const auto parts = options.step ? std::nullopt : verify_parts(options, json);
  if (parts && all.value().empty()) exit_code = troupe::exit_code(*parts);
  if (options.json)
    std::cout << json.dump(2) << "\n";
  else if (json.empty())
    std::cout << "no checkpoint yet\n";
  return exit_code;
}

}  // namespace

void add_checkpoint(Commands& commands) {
  auto* group =
      commands.root.add_subcommand("checkpoint", "What a run has saved, and whether it is whole");
  group->require_subcommand(1);
  const auto add = [&](const char* name, const char* about, int (*run)(const Options&),
                       const char* about_step) {
    auto options = std::make_shared<Options>();
    auto* command = group->add_subcommand(name, about);
    command->add_option("RUN", options->run, "The run's folder, or one of checkpoints")
        ->required()
        ->type_name("FOLDER");
    if (about_step != nullptr) command->add_option("--step", options->step, about_step);
    options->timeout.add_to(*command);
    command->add_flag("--json", options->json, "For programs");
    command->callback([&commands, options, run] {
      commands.exit_code = options->timeout.limit([&] { return run(*options); });
    });
  };
  add("list", "The checkpoints of a run, oldest first", list, nullptr);
  add("show", "What is in a checkpoint", show, "Which one; the newest without it");
  add("verify",
      "Read every byte and compare checksums; exit code 3 where one differs, or none is whole",
      verify, "Which one; all without it");
}

}  // namespace troupe::app

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "app/data_commands.hpp"
#include "app/terminal.hpp"
#include "runtime/data/made/demo_data.hpp"
#include "runtime/job/load_job.hpp"

namespace troupe::app {

Result<OpenedData> open_data(const JobArguments& arguments) {
  auto loaded = load_job_in_time(arguments.file, arguments.all());
  if (!loaded.ok()) return std::move(loaded).error();
  auto reads = std::make_unique<EndOnStalledRead>(loaded.value().job);
  auto setup = engine::prepare(loaded.value().job);
  if (!setup.ok()) return std::move(setup).error();
  auto dataset = data::Dataset::open(setup.value().data);
  if (!dataset.ok()) return std::move(dataset).error();
  return OpenedData{std::move(reads), std::move(setup).value(),
                    std::make_shared<const data::Dataset>(std::move(dataset).value())};
}

int make_data(const MakeOptions& options) {
  const auto made =
      data::make_demo_data(options.folder, {options.samples, options.seed, options.uneven});
  if (!made.ok()) return report(made.error());
  const auto& summary = made.value();
  std::cout << "wrote " << with_commas(summary.samples) << " samples with "
            << with_commas(summary.images) << " pictures and " << with_commas(summary.clips)
            << " clips to " << options.folder << "\nnext: name it in a job file, json = \""
            << summary.json.string() << "\"\n";
  return kDone;
}

namespace {

void add_make(Commands& commands, CLI::App& data) {
  auto options = std::make_shared<MakeOptions>();
  auto* make = data.add_subcommand("make", "Make the demo's data set: shapes and tones");
  make->callback([&commands, options] { commands.exit_code = make_data(*options); });
  make->add_option("DIR", options->folder, "Where; made if missing")->required()->type_name("DIR");
  make->add_option("-n,--samples", options->samples, "How many samples")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  make->add_option("--seed", options->seed, "Another seed: other samples")->capture_default_str();
  make->add_flag("--uneven", options->uneven,
                 "Sizes and kinds as mixed as in real data: text, pictures and clips, alone and\n"
                 "together, most small and one in sixteen a giant; for tests of balancing");
}

void add_audit(Commands& commands, CLI::App& data) {
  auto options = std::make_shared<AuditOptions>();
  auto* audit = data.add_subcommand("audit", "Whether a run trained every sample exactly once");
  audit->callback([&commands, options] {
    commands.exit_code = options->timeout.limit([&] { return audit_data(*options); });
  });
  audit->add_option("RUN", options->run, "The run's folder")->required()->type_name("RUN");
  options->timeout.add_to(*audit);
  audit->add_flag("--json", options->json, "Print one JSON object instead");
}

}  // namespace

void add_data(Commands& commands) {
  auto* data = commands.root.add_subcommand("data", "Look at the data of a job, or make some");
  data->require_subcommand(1);
  auto options = std::make_shared<DataOptions>();
  const auto add = [&](const char* name, const char* summary, int (*run)(const DataOptions&)) {
    auto* command = data->add_subcommand(name, summary);
    command->callback([&commands, options, run] { commands.exit_code = run(*options); });
    return command;
  };

  auto* check = add("check", "Decode every sample; print lengths and what is bad", check_data);
  options->job.add_to(*check);
  check->add_flag("--json", options->json, "Print one JSON object instead");

  auto* show = add("show", "Print samples as the model sees them", show_data);
  options->job.add_to(*show);
  show->add_option("-n,--samples", options->samples, "How many")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  show->add_option("--skip", options->skip, "Leave out so many first")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  show->add_option("--id", options->only_id, "Only the sample of this id");
  add_audit(commands, *data);
  add_make(commands, *data);
}

}  // namespace troupe::app

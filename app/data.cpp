#include <CLI/CLI.hpp>
#include <memory>

#include "app/data_commands.hpp"
#include "app/terminal.hpp"
#include "runtime/job/load_job.hpp"

namespace troupe::app {

Result<OpenedData> open_data(const JobArguments& arguments) {
  auto loaded = job::load_job(arguments.file, arguments.all());
  if (!loaded.ok()) return std::move(loaded).error();
  auto setup = engine::prepare(loaded.value().job);
  if (!setup.ok()) return std::move(setup).error();
  auto dataset = data::Dataset::open(setup.value().data);
  if (!dataset.ok()) return std::move(dataset).error();
  return OpenedData{std::move(setup).value(),
                    std::make_shared<const data::Dataset>(std::move(dataset).value())};
}

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
}

}  // namespace troupe::app

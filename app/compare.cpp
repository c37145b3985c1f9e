#include "runtime/state/compare.hpp"

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/commands.hpp"
#include "app/read_limits.hpp"
#include "app/terminal.hpp"
#include "runtime/vocabulary/printable.hpp"

namespace troupe::app {

namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string run_a;
  std::string run_b;
  std::optional<double> rtol;
  std::optional<double> loss_rtol;
  std::optional<double> gradient_rtol;
  std::string norm = "max";
  ReadTimeout timeout;
  bool json = false;
};

/// A number as %.3g; infinities and exact zero by name.
std::string shown(double x) {
  std::ostringstream text;
  text.precision(3);
  text << x;
  return text.str();
}

void print_tensors(const char* title, const state::TensorsComparison& compared) {
  std::cout << title << ": largest difference " << shown(compared.largest) << " over "
            << compared.tensor_count << " tensors"
            << (compared.equal_to_the_bit ? ", equal to the bit" : "") << '\n';
  for (const auto& module : compared.modules)
    std::cout << "  " << printable(module.name) << "  " << shown(module.difference) << '\n';
  if (compared.equal_to_the_bit) return;
  std::cout << "  worst:\n";
  for (const auto& tensor : compared.worst)
    std::cout << "    " << shown(tensor.difference) << "  " << printable(tensor.name) << '\n';
}

void print_losses(const state::LossComparison& losses) {
  std::cout << "loss: largest difference " << shown(losses.largest) << " over " << losses.step_count
            << " steps";
  if (losses.largest_at_step > 0) std::cout << ", at step " << losses.largest_at_step;
  if (losses.unmatched_steps > 0)
    std::cout << "; " << losses.unmatched_steps << " steps are in one run only";
  std::cout << '\n';
}

/// JSON has no infinity; it becomes null there.
Json number(double x) { return std::isfinite(x) ? Json(x) : Json(nullptr); }

Json tensors_json(const state::TensorsComparison& compared) {
  Json json{{"largest", number(compared.largest)},
            {"tensors", compared.tensor_count},
            {"equal_to_the_bit", compared.equal_to_the_bit}};
  for (const auto& module : compared.modules)
    json["modules"][module.name] = number(module.difference);
  json["worst"] = Json::array();
  for (const auto& tensor : compared.worst)
    json["worst"].push_back({{"name", tensor.name}, {"difference", number(tensor.difference)}});
  return json;
}

void print_json(const state::RunComparison& compared, bool within) {
  Json json{{"parameters", tensors_json(compared.parameters)}};
  if (compared.losses)
    json["loss"] = {{"largest", number(compared.losses->largest)},
                    {"largest_at_step", compared.losses->largest_at_step},
                    {"steps", compared.losses->step_count},
                    {"unmatched_steps", compared.losses->unmatched_steps}};
  if (compared.gradients) json["gradients"] = tensors_json(*compared.gradients);
  json["notes"] = compared.notes;
  json["within_tolerance"] = within;
  std::cout << json.dump(2) << '\n';
}

/// One tolerance against what was measured. A tolerance for something the runs did not leave behind
/// is a mistake, never a success.
struct Verdict {
  bool within = true;
  std::string text;

  void add(const char* what, const std::optional<double>& tolerance,
           const std::optional<double>& measured) {
    if (!tolerance) return;
    const bool good = measured && *measured <= *tolerance;
    within = within && good;
    text += std::string(what) +
            (good       ? " within "
             : measured ? " NOT within "
                        : " missing for ") +
            shown(*tolerance) + "\n";
  }
};

int compare(const Options& options) {
  const auto norm = options.norm == "l2" ? state::DifferenceNorm::l2 : state::DifferenceNorm::max;
  const auto compared = state::compare_runs(options.run_a, options.run_b, norm);
  if (!compared.ok()) return report(compared.error());
  const auto& result = compared.value();
  Verdict verdict;
  verdict.add("parameters", options.rtol, result.parameters.largest);
  verdict.add("loss", options.loss_rtol,
              result.losses ? std::optional(result.losses->largest) : std::nullopt);
  verdict.add("gradients", options.gradient_rtol,
              result.gradients ? std::optional(result.gradients->largest) : std::nullopt);
  if (options.json) {
    print_json(result, verdict.within);
  } else {
    print_tensors("parameters", result.parameters);
    if (result.losses) print_losses(*result.losses);
    if (result.gradients) print_tensors("gradients of step 1", *result.gradients);
    for (const auto& note : result.notes) std::cout << "note: " << printable(note) << '\n';
    std::cout << verdict.text;
  }
  return verdict.within ? kDone : kFailed;
}

}  // namespace

void add_compare(Commands& commands) {
  auto options = std::make_shared<Options>();
  auto* command =
      commands.add("compare", "Say how far the final parameters of two runs are apart",
                   [options] { return options->timeout.limit([&] { return compare(*options); }); });
  command->add_option("RUN_A", options->run_a, "A run folder")->required()->type_name("DIR");
  command->add_option("RUN_B", options->run_b, "Another one")->required()->type_name("DIR");
  const auto tolerance = [&](const char* flag, std::optional<double>& value, const char* help) {
    command->add_option(flag, value, help)->type_name("X")->check(CLI::NonNegativeNumber);
  };
  tolerance("--rtol", options->rtol, "Exit 1 if a parameter tensor differs by more");
  tolerance("--loss-rtol", options->loss_rtol, "Exit 1 if the loss of a step differs by more");
  tolerance("--gradient-rtol", options->gradient_rtol,
            "Exit 1 if a gradient of step 1 differs by more (train.dump_gradients)");
  command->add_option("--norm", options->norm, "max: max|a-b| / max|a|; l2: ratio of 2-norms")
      ->check(CLI::IsMember({"max", "l2"}))
      ->capture_default_str();
  options->timeout.add_to(*command);
  command->add_flag("--json", options->json, "Print one JSON object instead");
}

}  // namespace troupe::app

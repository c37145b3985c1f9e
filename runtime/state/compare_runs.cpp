#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <system_error>

#include <nlohmann/json.hpp>

#include "runtime/files/file_reads.hpp"
#include "runtime/files/look_up.hpp"
#include "runtime/files/read_stream.hpp"
#include "runtime/state/compare.hpp"

namespace troupe::state {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using LossCurve = std::map<std::int64_t, double>;  // By step; NaN where the file says null.

constexpr const char* kOtherRun = "name another run, or train this one again";

// NaN where the value is null, which is how JSON writes a loss that was not finite.
Status read_loss_line(const Json& line, const std::string& where, LossCurve& curve) {
  const auto bad = [&](const char* why) { return Error{Errc::bad_data, why, where, kOtherRun}; };
  if (!line.is_object()) return bad("not a JSON object");
  if (!line.contains("step") || !line["step"].is_number_integer())
    return bad("no whole number `step`");
  if (!line.contains("loss") || !(line["loss"].is_number() || line["loss"].is_null()))
    return bad("no number `loss`");
  const auto& loss = line["loss"];
  curve[line["step"].get<std::int64_t>()] =
      loss.is_null() ? std::numeric_limits<double>::quiet_NaN() : loss.get<double>();
  return Done{};
}

Result<LossCurve> read_losses(const fs::path& path) {
  files::ReadStream file(path);
  if (!file) return Error{Errc::not_found, "no such file", path.string(), kOtherRun};
  LossCurve curve;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    const auto where = path.string() + ":" + std::to_string(number);
    const auto parsed = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    // A last line without its newline is what a killed job leaves behind.
    if (parsed.is_discarded() && file.eof()) break;
    if (parsed.is_discarded()) return Error{Errc::bad_data, "not valid JSON", where, kOtherRun};
    if (auto read = read_loss_line(parsed, where, curve); !read) return read.error();
  }
  return curve;
}

std::vector<fs::path> safetensors_in(const fs::path& folder) {
  const files::ReadingFile reading(folder);
  std::error_code code;
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder, code))
    if (entry.path().extension() == ".safetensors") found.push_back(entry.path());
  return found;
}

double loss_difference(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  const double difference = std::abs(a - b) / std::max(std::abs(a), 1e-8);
  return std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference;
}

Status require_folder(const fs::path& run) {
  if (files::is_folder(run)) return Done{};
  return Error{Errc::not_found, "no such run folder", run.string(),
               "give the folder that `job.run_dir` names"};
}

// Compares gradients where both runs have them; otherwise leaves a note.
Status add_gradients(const fs::path& run_a, const fs::path& run_b, DifferenceNorm norm,
                     RunComparison& result) {
  const fs::path file = fs::path("gradients") / "step-1.safetensors";
  for (const auto& run : {run_a, run_b}) {
    if (files::is_there(run / file)) continue;
    result.notes.push_back("gradients not compared: " + (run / file).string() +
                           " is missing (train.dump_gradients = true writes it)");
    return Done{};
  }
  const auto a = read_safetensors(run_a / file), b = read_safetensors(run_b / file);
  if (!a) return a.error();
  if (!b) return b.error();
  auto compared =
      compare_tensors(a.value(), b.value(), norm, "gradient", run_a.string(), run_b.string());
  if (!compared) return compared.error();
  result.gradients = std::move(compared).value();
  return Done{};
}

Status add_losses(const fs::path& run_a, const fs::path& run_b, RunComparison& result) {
  for (const auto& run : {run_a, run_b}) {
    if (files::is_there(run / "metrics.jsonl")) continue;
    result.notes.push_back("losses not compared: " + (run / "metrics.jsonl").string() +
                           " is missing");
    return Done{};
  }
  auto compared = compare_losses(run_a / "metrics.jsonl", run_b / "metrics.jsonl");
  if (!compared) return compared.error();
  result.losses = compared.value();
  return Done{};
}

}  // namespace

Result<LossComparison> compare_losses(const fs::path& a, const fs::path& b) {
  const auto curve_a = read_losses(a), curve_b = read_losses(b);
  if (!curve_a) return curve_a.error();
  if (!curve_b) return curve_b.error();
  LossComparison result;
  for (const auto& [step, loss] : curve_a.value()) {
    const auto other = curve_b.value().find(step);
    if (other == curve_b.value().end()) continue;
    ++result.step_count;
    const double difference = loss_difference(loss, other->second);
    if (difference <= result.largest) continue;
    result.largest = difference;
    result.largest_at_step = step;
  }
  if (result.step_count == 0)
    return Error{Errc::bad_data, "no step is in both " + a.string() + " and " + b.string(), "",
                 "compare runs that trained the same steps"};
  result.unmatched_steps =
      static_cast<std::int64_t>(curve_a.value().size() + curve_b.value().size()) -
      2 * result.step_count;
  return result;
}

Result<TensorMap> read_model(const fs::path& folder) {
  auto files = safetensors_in(folder);
  if (files.empty())
    return Error{Errc::not_found, "no final parameters (*.safetensors)", folder.string(),
                 "the run has to end normally to write them; see its log"};
  std::sort(files.begin(), files.end());
  TensorMap model;
  for (const auto& file : files) {
    auto tensors = read_safetensors(file);
    if (!tensors) return tensors.error();
    for (const auto& [name, tensor] : tensors.value())
      if (!model.emplace(name, tensor).second)
        return Error{Errc::bad_data, "parameter '" + name + "' stands in an earlier file too",
                     file.string(), "remove the file that does not belong to the model"};
  }
  return model;
}

Result<RunComparison> compare_runs(const fs::path& run_a, const fs::path& run_b,
                                   DifferenceNorm norm) {
  for (const auto& run : {run_a, run_b})
    if (auto there = require_folder(run); !there) return there.error();
  const auto a = read_model(run_a / "model"), b = read_model(run_b / "model");
  if (!a) return a.error();
  if (!b) return b.error();
  auto parameters =
      compare_tensors(a.value(), b.value(), norm, "parameter", run_a.string(), run_b.string());
  if (!parameters) return parameters.error();
  RunComparison result{
      .parameters = std::move(parameters).value(), .losses = {}, .gradients = {}, .notes = {}};
  if (auto added = add_losses(run_a, run_b, result); !added) return added.error();
  if (auto added = add_gradients(run_a, run_b, norm, result); !added) return added.error();
  return result;
}

}  // namespace troupe::state

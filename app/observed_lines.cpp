#include "app/observed_lines.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "app/terminal.hpp"
#include "runtime/vocabulary/printable.hpp"

namespace troupe::app {

namespace {

using Json = nlohmann::ordered_json;
using observers::Observed;
using observers::ObservedStep;

/// Of numbers that are finite; the others are counted.
struct Statistics {
  double mean = 0, deviation = 0, largest = 0;
  std::int64_t not_finite = 0;
};

Statistics statistics_of(const observers::Values& values) {
  Statistics found;
  double sum = 0, squares = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double value = values[i];
    if (!std::isfinite(value)) {
      ++found.not_finite;
      continue;
    }
    sum += value;
    squares += value * value;
    found.largest = std::max(found.largest, std::abs(value));
  }
  const auto count = static_cast<double>(values.size()) - static_cast<double>(found.not_finite);
  if (count < 1) return found;
  found.mean = sum / count;
  found.deviation = std::sqrt(std::max(squares / count - found.mean * found.mean, 0.0));
  return found;
}

const char* name_of(observers::Kind kind) { return kKinds[static_cast<std::size_t>(kind)]; }

/// JSON knows no infinity.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

/// Whoever reads it sees it at once.
void print(const Json& json) {
  // Ids are the data's: what is no UTF-8 is replaced.
  std::cout << json.dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
}

std::string formatted(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

Json json_of(const Observed& part, const Statistics& of, bool values) {
  Json json{{"step", part.step},
            {"module", part.module},
            {"kind", name_of(part.kind)},
            {"replica", part.replica},
            {"microbatch", part.microbatch},
            {"part", part.part},
            {"ids", part.ids},
            {"rows", part.rows},
            {"first_rows", part.first_rows},
            {"width", part.width},
            {"mean", of.mean},
            {"deviation", of.deviation},
            {"largest", of.largest},
            {"not_finite", of.not_finite}};
  if (!values) return json;
  Json all = Json::array();
  for (std::size_t i = 0; i < part.values.size(); ++i) all.push_back(number(part.values[i]));
  json["values"] = std::move(all);
  return json;
}

std::string text_of(const Observed& part, const Statistics& of) {
  std::int64_t rows = 0;
  for (const auto of_sample : part.rows) rows += of_sample;
  return "step " + std::to_string(part.step) + "  " + printable(part.module) + " " +
         name_of(part.kind) + "  replica " + std::to_string(part.replica) + " microbatch " +
         std::to_string(part.microbatch) + " part " + std::to_string(part.part) + ": " +
         counted(std::ssize(part.ids), "sample") + ", " + std::to_string(rows) + " x " +
         std::to_string(part.width) + ", mean " + formatted("%.4g", of.mean) + ", deviation " +
         formatted("%.4g", of.deviation) + ", largest " + formatted("%.4g", of.largest) +
         (of.not_finite > 0 ? ", " + std::to_string(of.not_finite) + " not finite" : "");
}

}  // namespace

void ObservedLines::see(const Observed& part) {
  const Statistics of = statistics_of(part.values);
  if (json_) return print(json_of(part, of, values_));
  std::cout << text_of(part, of) << std::endl;
}

void ObservedLines::see(const ObservedStep& step) {
  if (json_)
    return print({{"step", step.step},
                  {"committed", step.committed},
                  {"loss", number(step.loss)},
                  {"grad_norm", number(step.grad_norm)},
                  {"lr", number(step.learning_rate)},
                  {"tokens", step.tokens},
                  {"trained_tokens", step.trained_tokens},
                  {"ids", step.ids}});
  std::cout << "step " << step.step << ": loss " << formatted("%.4f", step.loss)
            << ", gradient norm " << formatted("%.4g", step.grad_norm) << ", "
            << counted(std::ssize(step.ids), "sample")
            << (step.committed ? "" : "; it changed nothing") << std::endl;
}

void print_end(const Watched& watched, bool json) {
  if (json)
    return print({{"job", watched.job},
                  {"steps", watched.steps},
                  {"parts", watched.parts},
                  {"missed", watched.missed},
                  {"job_ended", watched.is_over},
                  {"exit_code", watched.is_over && watched.exit_code >= 0 ? Json(watched.exit_code)
                                                                          : Json(nullptr)},
                  {"why", watched.why}});
  const std::string why = watched.why.empty() ? "" : ": " + printable(watched.why);
  std::cout << (watched.is_over ? "the job has ended" + why + "; " : "")
            << "seen: " << counted(watched.steps, "step") << ", " << counted(watched.parts, "part")
            << "; missed: " << counted(watched.missed, "part") << std::endl;
}

}  // namespace troupe::app

#include "engine/iteration/data_warnings.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "models/family/registry.hpp"
#include "runtime/job/where_given.hpp"

namespace troupe::engine {

namespace {

using std::to_string;

std::string samples_text(std::int64_t count) {
  return to_string(count) + (count == 1 ? " sample" : " samples");
}

class Warnings {
 public:
  explicit Warnings(const job::LoadedJob& loaded) : loaded_(loaded) {}

  void add(const std::string& key, const std::string& message, std::string fix) {
    const auto given = job::where_given(loaded_.origins, key);
    found_.push_back(
        {Errc::invalid_argument, key + message, given.empty() ? "job" : given, std::move(fix)});
  }
  std::vector<Error> found() && { return std::move(found_); }

 private:
  const job::LoadedJob& loaded_;
  std::vector<Error> found_;
};

/// An encoder whose media no record names trains nothing and is never run.
void warn_of_idle_encoders(const job::Job& job, const data::Dataset& dataset, Warnings& warnings) {
  for (const auto& module : job.modules) {
    const auto medium = models::media_input(module).medium;
    if (medium == Medium::none) continue;
    const bool images = medium == Medium::image;
    const auto has = [&](const data::Record& record) {
      return images ? !record.images.empty() : !record.audio.empty();
    };
    if (std::any_of(dataset.records().begin(), dataset.records().end(), has)) continue;
    warnings.add("modules." + module.name,
                 std::string(" has nothing to do: no sample has ") + (images ? "images" : "audio"),
                 "add data that has, or remove the module and its projector");
  }
}

}  // namespace

std::vector<Error> data_warnings(const job::LoadedJob& loaded, const data::Dataset& dataset) {
  const job::Job& job = loaded.job;
  Warnings warnings(loaded);
  warn_of_idle_encoders(job, dataset, warnings);
  const auto batch = job.train.global_batch_size, records = dataset.size();
  if (loaded.origins.contains("data.shuffle") && job.data.shuffle && batch >= records)
    warnings.add("data.shuffle",
                 records == 1 ? " has no effect: there is one sample"
                              : " changes no batch: each step takes all " + samples_text(records),
                 batch == 1 ? "add data" : "lower train.global_batch_size, or add data");
  if (batch > records)
    warnings.add("train.global_batch_size",
                 " " + to_string(batch) + " is more than the data set has: each step takes its " +
                     samples_text(records) + " and is an epoch",
                 "lower it to at most " + to_string(records) + ", or add data");
  return std::move(warnings).found();
}

std::string warning_text(const Error& warning) {
  return warning.where + ": " + warning.message + "; " + warning.fix;
}

}  // namespace troupe::engine

#include <iostream>

#include "app/data_commands.hpp"
#include "app/terminal.hpp"
#include "runtime/data/batches/epoch_order.hpp"
#include "runtime/data/samples/decode_sample.hpp"
#include "runtime/data/samples/show_sample.hpp"

namespace troupe::app {

int show_data(const DataOptions& options) {
  const auto opened = open_data(options.job);
  if (!opened.ok()) return report(opened.error());
  const auto& dataset = *opened.value().dataset;
  const auto& setup = opened.value().setup;
  const auto order = data::record_order(setup.data, 0, dataset.size());
  std::int64_t left = options.samples;
  std::int64_t skip = options.skip;
  for (const auto index : order) {
    const auto& record = dataset[index];
    if (!options.only_id.empty() && record.id != options.only_id) continue;
    if (skip-- > 0) continue;
    if (left-- == 0) break;
    const auto outcome = data::decode_sample(dataset, record, setup.data);
    std::cout << data::show_sample(outcome, setup.data, stdout_has_colours()) << '\n';
  }
  if (left == options.samples)
    return report({Errc::invalid_argument, "no such sample among " + std::to_string(dataset.size()),
                   "troupe data show", "leave --id and --skip out to see the first ones"});
  return kDone;
}

}  // namespace troupe::app

#include "actors/node/loader_actor.hpp"

#include "actors/link/exceptions.hpp"
#include "runtime/data/lengths/length_index.hpp"

namespace troupe::actors {

namespace {

using Self = LoaderActor::stateful_pointer<LoaderState>;

/// Batches that may be requested before they are taken: what the scheduler asks ahead, the one that
/// is measured beyond that, and one more.
data::LoaderLimits limits(const job::Job& job) {
  data::LoaderLimits limits;
  limits.threads = job.data.threads;
  limits.batches_ahead = job.data.prefetch + 3;
  return limits;
}

data::Epochs epochs_of(const LoaderState& state, const engine::BatchOrder& order) {
  return order.epochs.empty() ? data::Epochs(state.resources->dataset->size())
                              : data::Epochs(order.epochs);
}

void request(Self self, const engine::BatchOrder& order) {
  auto& state = self->state;
  data::BatchRequest request{order.batch, order.epoch, {}, epochs_of(state, order)};
  const auto modules = engine::media_modules(state.resources->setup);
  if (order.measure) request.measure = modules;
  for (const auto& sample : order.samples)
    request.samples.push_back({sample.position, engine::wanted_parts(sample, modules)});
  state.loader->drop(order.batch);  // Where an older configuration ordered it too.
  state.orders[order.batch] = order;
  const auto handle = caf::actor_cast<caf::actor>(self);
  const auto on_ready = [handle, batch = order.batch, epoch_number = order.epoch_number] {
    caf::anon_send(handle, loaded_atom::value, batch, epoch_number);
  };
  auto asked = state.loader->request(std::move(request), on_ready);
  if (!asked.ok()) self->send(state.node, failed_atom::value, asked.error());
}

void deliver(Self self, std::int64_t batch, EpochNumber epoch_number) {
  auto& state = self->state;
  const auto ordered = state.orders.find(batch);
  if (ordered == state.orders.end() || ordered->second.epoch_number != epoch_number) return;
  auto taken = state.loader->take(batch, std::chrono::milliseconds(0));
  if (!taken.ok()) return self->send(state.node, failed_atom::value, taken.error());
  const auto order = state.orders.extract(ordered).mapped();
  if (epoch_number < state.resources->epoch_number) return;  // Nobody will train them here.
  data::DecodedBatch decoded = std::move(taken).value();
  const NodeId node = state.resources->node;
  const auto& index = state.resources->setup.lengths;
  auto notes = index != nullptr ? index->take_notes() : std::vector<std::string>();
  if (order.measure) {
    auto lengths = engine::report_lengths(node, order, decoded.lengths, decoded.decode_ms);
    lengths.indexed = decoded.indexed;
    lengths.notes = std::move(notes);
    return self->send(state.node, std::move(lengths));
  }
  auto report =
      engine::report_on(node, order, decoded.samples, state.resources->setup, decoded.decode_ms);
  report.notes = std::move(notes);
  const std::int64_t before = epochs_of(state, order).places_before(order.epoch);
  for (std::size_t i = 0; i < decoded.samples.size(); ++i) {
    auto* sample = std::get_if<data::DecodedSample>(&decoded.samples[i]);
    if (!sample) continue;
    sample->position = before + order.samples[i].position;
    const std::int64_t key = sample->position;
    state.resources->samples.put(key,
                                 std::make_shared<const data::DecodedSample>(std::move(*sample)));
  }
  self->send(state.node, std::move(report));
}

}  // namespace

LoaderActor::behavior_type loader(Self self, NodeResources* resources, NodeActor node) {
  self->state.resources = resources;
  self->state.node = node;
  tell_of_exceptions(self, "the loader", [self](const Error& error) {
    self->send(self->state.node, failed_atom::value, error);
  });
  auto started = data::BatchLoader::start(resources->dataset, resources->setup.data,
                                          limits(resources->setup.job), resources->setup.lengths);
  if (started.ok()) {
    self->state.loader = std::move(started).value();
  } else {
    self->send(node, failed_atom::value, started.error());
  }
  return {
      [self](const engine::BatchOrder& order) {
        if (self->state.loader) request(self, order);
      },
      [self](loaded_atom, std::int64_t batch, EpochNumber epoch_number) {
        deliver(self, batch, epoch_number);
      },
  };
}

}  // namespace troupe::actors

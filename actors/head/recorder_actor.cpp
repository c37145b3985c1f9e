#include "actors/head/recorder_actor.hpp"

#include <ATen/ops/empty.h>

#include <bit>

#include "actors/link/exceptions.hpp"
#include "runtime/observe/run_mark.hpp"
#include "runtime/observe/trace_names.hpp"

namespace troupe::actors {

namespace {

using Self = RecorderActor::stateful_pointer<RecorderState>;

constexpr auto kCollectTimeout = std::chrono::seconds(60);
/// Of lines that the disk does not take: what is kept in memory before the job ends.
constexpr std::size_t kUnwrittenMax = std::size_t{64} << 20;

void check(Self self, const Status& status) {
  if (status.ok() || self->state.failed) return;
  self->state.failed = true;
  self->send(self->state.supervisor, failed_atom::value, status.error());
}

/// Of lines: a disk that is full for a while costs no training and no line.
void check_lines(Self self, const Status& status) {
  auto& state = self->state;
  const std::size_t unwritten = state.folder->unwritten();
  if (status.ok() && unwritten == 0) {
    if (std::exchange(state.lacks_room, false))
      state.logger.info("the run folder can be written again; no line is missing");
    return;
  }
  if (status.ok()) return;
  if (status.error().code != Errc::io_failed || unwritten > kUnwrittenMax)
    return check(self, status);
  if (!std::exchange(state.lacks_room, true))
    state.logger.warning(to_string(status.error()) +
                         "\ntraining goes on; lines are kept in memory until they can be written");
}

/// Lines that were written, but that a power cut may take.
void sync(Self self) {
  auto& state = self->state;
  const Status synced = state.folder->sync();
  if (synced.ok() || state.folder->unwritten() > 0) return check_lines(self, synced);
  if (!std::exchange(state.is_sync_refused, true))
    state.logger.warning("lines of the run folder may not outlive a crash of this machine: " +
                         to_string(synced.error()));
}

/// A trace that cannot be written any more stays as it is.
void check_trace(Self self, const Status& status) {
  auto& state = self->state;
  if (status.ok()) return;
  state.trace.reset();
  state.traces_end = true;
  state.logger.warning("no traces from here on: " + to_string(status.error()));
}

/// Opens the traces where they are not open yet, and names what follows in them.
void open_trace(Self self) {
  auto& state = self->state;
  if (state.traces_end) return;
  if (!state.trace) {
    auto opened = observe::RunTrace::open(state.folder->path(), state.trace_origin_ns);
    if (!opened.ok()) return check_trace(self, opened.error());
    state.trace = std::move(opened).value();
  }
  check_trace(self, state.trace->set_names(observe::trace_names(state.plan)));
}

void write_configuration(Self self, const Configuration& configuration) {
  auto& state = self->state;
  check(self, state.folder->write_plan(configuration.plan, configuration.epoch_number));
  for (const auto& line : state.stage_times.lines(state.plan)) state.logger.info(line);
  state.plan = configuration.plan;
  state.stage_times = {};
  for (const auto& line : engine::layout_lines(state.plan)) state.logger.info(line);
  open_trace(self);
}

/// Says how the lengths of an epoch were come by, once it is over.
void end_lengths(Self self) {
  auto& state = self->state;
  const auto counted = std::exchange(state.lengths, {});
  if (counted.samples > 0)
    state.logger.info("lengths of epoch " + std::to_string(counted.epoch + 1) + ": of " +
                      std::to_string(counted.samples) + " samples, " +
                      std::to_string(counted.indexed) + " from the index");
}

void note_lengths(Self self, const engine::PlannedBatch& batch) {
  auto& state = self->state;
  if (batch.span.epoch != state.lengths.epoch) end_lengths(self);
  state.lengths.epoch = batch.span.epoch;
  state.lengths.samples += batch.measured;
  state.lengths.indexed += batch.indexed;
  for (const auto& note : batch.notes)
    if (state.length_notes.insert(note).second) state.logger.warning(note);
}

/// Says what an exchange is refused for: once, because figures in it differ from step to step.
void note_refusal(Self self, const engine::PlannedBatch& batch) {
  auto& state = self->state;
  const auto& refused = batch.prediction.exchange_refused;
  if (!refused || !state.no_exchange.insert(refused->where).second) return;
  state.logger.warning(
      std::string(batch.prediction.exchanged ? "not all encoders share step "
                                             : "encoders do not share step ") +
      std::to_string(batch.iteration.step) +
      " out (balancer.exchange), nor others with the same trouble: " + to_string(*refused));
}

void write_batch(Self self, const engine::PlannedBatch& batch) {
  auto& state = self->state;
  note_lengths(self, batch);
  note_refusal(self, batch);
  for (const auto& dropped : batch.dropped)
    state.logger.warning("dropped " + data::to_string(dropped.why));
  state.stage_times.add_check(batch.check_ms);
  check_lines(self, state.folder->write_batch(batch));
}

std::string observed_words(const observers::Tally& observed) {
  return "observers were shown " + std::to_string(observed.shown) + " parts and missed " +
         std::to_string(observed.dropped);
}

void write_trace(Self self, const StepRecord& record) {
  auto& state = self->state;
  if (!state.trace) return;
  const auto before = state.trace->stride();
  check_trace(self, state.trace->write(record.events, record.prediction.events));
  if (!state.trace) return;
  if (const auto stride = state.trace->stride(); stride > before)
    state.logger.info("trace.json was full: between its first and last steps it keeps those that " +
                      std::to_string(stride) + " divides");
}

/// Says once what an observer lacks, and how much it has not seen from time to time.
void note_observed(Self self, const StepRecord& record) {
  auto& state = self->state;
  for (const auto& trouble : record.observed.troubles) state.logger.warning(trouble);
  const auto before = state.observed.dropped;
  state.observed.shown += record.observed.shown;
  state.observed.dropped += record.observed.dropped;
  // At the first one, and whenever they have doubled since.
  if (std::bit_width(static_cast<std::uint64_t>(before)) <
      std::bit_width(static_cast<std::uint64_t>(state.observed.dropped)))
    state.logger.warning(
        observed_words(state.observed) +
        "; raise observe.observers[].every_steps or queue to lose fewer (--every and --queue "
        "of troupe observe)");
}

/// Another head learns without it, only later.
void write_memory(Self self, const HeadMemory& memory) {
  auto& state = self->state;
  const auto written = state.folder->write_memory(memory);
  if (written.ok() || std::exchange(state.is_memory_refused, true)) return;
  state.logger.warning(
      "a head that takes over from this one would learn costs and slow nodes anew: " +
      to_string(written.error()));
}

void write_step(Self self, const StepRecord& record) {
  auto& state = self->state;
  check_lines(self, state.folder->write_step(record.metrics, record.ids));
  if (record.for_next_head) write_memory(self, *record.for_next_head);
  write_trace(self, record);
  state.reporter->report(record.metrics);
  note_observed(self, record);
  state.stage_times.add(record.prediction, record.events, record.metrics.step_ms);
  if (record.nonfinite_samples.empty()) return;
  std::string names;
  for (std::size_t i = 0; i < record.nonfinite_samples.size() && i < 8; ++i)
    names += (i ? ", " : "") + record.nonfinite_samples[i];
  state.logger.warning("step " + std::to_string(record.metrics.step) +
                       ": loss not finite for samples " + names);
}

/// A line of events.jsonl, and a mark in the trace. An event is told when all its phases are over.
void write_event(Self self, const observe::RunEvent& event) {
  auto& state = self->state;
  check_lines(self, state.folder->write_event(event));
  if (event.is_under_way) return;
  if (event.has_phases)
    state.change_ns =
        observe::trace_now_ns() - static_cast<std::int64_t>(1e6 * observe::phases_ms(event));
  if (!state.trace) return;
  if (const auto mark = observe::run_mark(event, state.change_ns))
    check_trace(self, state.trace->mark(*mark));
}

/// Receives what nodes offered and writes it as one file.
Status collect(Self self, Collection collection, EpochNumber epoch_number,
               const std::vector<Offers>& offers) {
  auto& state = self->state;
  std::map<std::string, at::Tensor> tensors;
  std::vector<transport::Operation> operations;
  for (const Offers& node : offers) {
    for (const TensorOffer& offer : node.tensors) {
      auto tensor = at::empty(offer.shape, static_cast<at::ScalarType>(offer.dtype));
      tensors[offer.name] = tensor;
      const auto tag = transport::make_tag(epoch_number, transport::TagKind::state,
                                           static_cast<std::uint64_t>(collection), offer.index);
      operations.push_back(state.transport->receive(
          node.node.value, tag,
          {tensor.data_ptr(), tensor.nbytes(), std::make_shared<at::Tensor>(tensor)}));
    }
  }
  const auto deadline = transport::within(kCollectTimeout);
  for (const auto& operation : operations)
    if (auto done = operation.wait(deadline); !done.ok()) return done;
  return collection == Collection::parameters ? state.folder->write_model(tensors)
                                              : state.folder->write_first_gradients(tensors);
}

}  // namespace

RecorderActor::behavior_type recorder(Self self, std::shared_ptr<engine::RunFolder> folder,
                                      observe::Console* console, observe::Logger logger,
                                      observe::TrainingGoal goal, transport::Transport* transport,
                                      SupervisorActor supervisor) {
  auto& state = self->state;
  state.folder = std::move(*folder);
  state.trace_origin_ns = observe::trace_now_ns();
  state.logger = logger;
  state.reporter.emplace(*console, logger, goal);
  state.transport = transport;
  state.supervisor = supervisor;
  tell_of_exceptions(self, "the recorder", [self](const Error& error) { check(self, error); });
  return {
      [self](begin_atom, const Configuration& configuration) {
        write_configuration(self, configuration);
      },
      [self](const PlannedBatchPtr& batch) { write_batch(self, *batch); },
      [self](const StepRecordPtr& record) { write_step(self, *record); },
      [self](const RunEventPtr& event) { write_event(self, *event); },
      [self](save_atom) -> caf::result<save_atom> {
        sync(self);
        return save_atom::value;
      },
      [self](collect_atom, Collection collection, EpochNumber epoch_number,
             const OffersPtr& offers) -> caf::result<finish_atom> {
        // Others may be asked for the same again, so that this is not the last word. What is
        // cancelled is of a layout that another one has replaced: they are asked already.
        auto done = collect(self, collection, epoch_number, *offers);
        if (!done.ok() && done.error().code != Errc::cancelled)
          self->send(self->state.supervisor, failed_atom::value, done.error());
        if (collection == Collection::parameters) check(self, self->state.folder->sync());
        return finish_atom::value;
      },
      [self](finish_atom) {
        auto& recorded = self->state;
        recorded.reporter->finish();
        sync(self);
        if (const auto lost = recorded.folder->unwritten(); lost > 0)
          recorded.logger.warning(std::to_string(lost) +
                                  " bytes of lines were not written: the run folder lacks them");
        for (const auto& line : recorded.stage_times.lines(recorded.plan))
          recorded.logger.info(line);
        end_lengths(self);
        if (recorded.observed.shown + recorded.observed.dropped > 0)
          recorded.logger.info(observed_words(recorded.observed));
        return finish_atom::value;
      },
  };
}

}  // namespace troupe::actors

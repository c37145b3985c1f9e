#include "runtime/observe/run_trace.hpp"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

namespace troupe::observe {

namespace {

using BytesByStep = std::map<std::int64_t, std::int64_t>;

// The first step between the first and the last ones, and the first of the last ones.
struct Between {
  BytesByStep::const_iterator begin, end;
};

Between between(const BytesByStep& bytes, const TraceLimits& limits) {
  const auto count = static_cast<std::int64_t>(bytes.size());
  const auto first = std::min(limits.first_steps, count);
  const auto last = std::max(count - limits.last_steps, first);
  return {std::next(bytes.begin(), first), std::next(bytes.begin(), last)};
}

std::int64_t sum(BytesByStep::const_iterator begin, BytesByStep::const_iterator end,
                 std::int64_t stride) {
  std::int64_t bytes = 0;
  for (; begin != end; ++begin)
    if (begin->first % stride == 0) bytes += begin->second;
  return bytes;
}

}  // namespace

std::int64_t stride_for(const BytesByStep& bytes_by_step, std::int64_t stride,
                        const TraceLimits& limits) {
  const auto [begin, end] = between(bytes_by_step, limits);
  const auto always = sum(bytes_by_step.begin(), begin, 1) + sum(end, bytes_by_step.end(), 1);
  const auto room = std::max(limits.bytes_max * 5 / 8 - always, always / 4);
  while (begin != end && sum(begin, end, stride) > room) stride *= 2;
  return stride;
}

std::function<bool(std::int64_t step)> kept_steps(const BytesByStep& bytes_by_step,
                                                  std::int64_t stride, const TraceLimits& limits) {
  const auto [begin, end] = between(bytes_by_step, limits);
  if (begin == end) return [](std::int64_t) { return true; };
  const auto from = begin->first, to = std::prev(end)->first;
  return [=](std::int64_t step) { return step < from || step > to || step % stride == 0; };
}

Result<RunTrace> RunTrace::open(const std::filesystem::path& folder, std::int64_t origin_ns,
                                const TraceLimits& limits) {
  auto measured = TraceWriter::open(folder / "trace.json", origin_ns);
  if (!measured) return std::move(measured).error();
  RunTrace trace(std::move(measured).value());
  trace.folder_ = folder;
  trace.origin_ns_ = origin_ns;
  trace.limits_ = limits;
  trace.full_at_ = limits.bytes_max;
  return trace;
}

Status RunTrace::set_names(TraceNames names) {
  names_ = std::move(names);
  if (auto named = measured_.set_names(names_); !named) return named;
  return predicted_ ? predicted_->set_names(names_) : Status{Done{}};
}

Status RunTrace::write(std::span<const TraceEvent> measured,
                       std::span<const TraceEvent> predicted) {
  if (auto put = measured_.write(measured); !put) return put;
  if (!measured.empty() && !predicted.empty())
    if (auto put = write_predicted(measured, predicted); !put) return put;
  return bytes() > full_at_ ? thin() : Status{Done{}};
}

Status RunTrace::write_predicted(std::span<const TraceEvent> measured,
                                 std::span<const TraceEvent> predicted) {
  if (!predicted_) {
    auto opened = TraceWriter::open(folder_ / "predicted.json", origin_ns_);
    if (!opened) return std::move(opened).error();
    predicted_ = std::move(opened).value();
    if (auto named = predicted_->set_names(names_); !named) return named;
  }
  auto begin_ns = measured.front().begin_ns;
  for (const auto& event : measured) begin_ns = std::min(begin_ns, event.begin_ns);
  std::vector<TraceEvent> events(predicted.begin(), predicted.end());
  for (auto& event : events) {
    event.begin_ns += begin_ns;
    event.end_ns += begin_ns;
  }
  return predicted_->write(events);
}

std::int64_t RunTrace::bytes() const {
  return measured_.bytes() + (predicted_ ? predicted_->bytes() : 0);
}

Status RunTrace::thin() {
  auto bytes_by_step = measured_.bytes_by_step();
  if (predicted_)
    for (const auto& [step, size] : predicted_->bytes_by_step()) bytes_by_step[step] += size;
  stride_ = stride_for(bytes_by_step, stride_, limits_);
  const auto wanted = kept_steps(bytes_by_step, stride_, limits_);
  if (auto kept = measured_.keep(wanted); !kept) return kept;
  if (predicted_)
    if (auto kept = predicted_->keep(wanted); !kept) return kept;
  // Room for three fifths of what is left, so that on average a step is copied twice.
  full_at_ = std::max(limits_.bytes_max, bytes() * 8 / 5);
  return Done{};
}

}  // namespace troupe::observe

#include "runtime/observe/trace_writer.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

namespace troupe::observe {

namespace {

constexpr std::string_view kEnd = "\n]\n";

std::string quoted_text(std::string_view text) {
  // Nearly every name: a JSON library takes longer for it than for all the numbers of its event.
  const auto is_plain = [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; };
  if (std::all_of(text.begin(), text.end(), is_plain)) return '"' + std::string(text) + '"';
  using Json = nlohmann::json;
  return Json(std::string(text)).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string_view category(ActionKind kind) {
  switch (time_kind(kind)) {
    case TimeKind::compute: return "compute";
    case TimeKind::update: return "update";
    case TimeKind::transfer: return "transfer";
    case TimeKind::offload: return "offload";
    case TimeKind::wait: return "wait";
  }
  return "wait";
}

// Viewers give process 0 a meaning of its own, so nodes count from 1 there.
std::string track(const DeviceSlot& slot) {
  return "\"pid\":" + std::to_string(slot.node.value + 1) +
         ",\"tid\":" + std::to_string(slot.local_index + 1);
}

// The identity of an arrow: equal at both ends, different for every other arrow. At most 52 bits,
// so that viewers which read numbers as doubles keep it.
std::uint64_t flow_id(const TraceEvent& event, std::int32_t number, std::int32_t device, int kind) {
  std::uint64_t hash = 0x9e3779b97f4a7c15ULL;
  for (const auto word : {static_cast<std::uint64_t>(event.step), std::uint64_t{event.epoch_number},
                          static_cast<std::uint64_t>(static_cast<std::uint32_t>(number)),
                          static_cast<std::uint64_t>(static_cast<std::uint32_t>(device)),
                          static_cast<std::uint64_t>(kind)}) {
    hash = (hash ^ word) * 0xbf58476d1ce4e5b9ULL;
    hash ^= hash >> 29;
  }
  return hash >> 12;
}

enum FlowKind { kRows, kGradient, kToReduce, kReduced, kContent, kToPartial, kRelayed };

struct Arrow {
  bool begins;
  std::uint64_t id;
};

// Two holders of a group have at most one link of each kind.
FlowKind flow_kind(const SumLink& link) {
  if (link.takes == ActionKind::reduce_partial) return kToPartial;
  if (link.takes == ActionKind::reduce) return kToReduce;
  return link.sends == ActionKind::reduce ? kReduced : kRelayed;
}

// Arrows that begin or end in this event. Both ends of a sum's transfers know them from the plan.
std::vector<Arrow> arrows_of(const TraceEvent& event, const TraceNames& names) {
  const auto& action = event.action;
  const auto message = [&](bool begins, FlowKind kind) {
    return std::vector<Arrow>{{begins, flow_id(event, action.message.value, 0, kind)}};
  };
  switch (action.kind) {
    case ActionKind::send: return message(true, kRows);
    case ActionKind::receive: return message(false, kRows);
    case ActionKind::send_gradient: return message(true, kGradient);
    case ActionKind::receive_gradient: return message(false, kGradient);
    case ActionKind::send_content:
    case ActionKind::receive_content:
      return {{action.kind == ActionKind::send_content,
               flow_id(event, action.delivery.value, 0, kContent)}};
    default: break;
  }
  std::vector<Arrow> arrows;
  for (const SumEnd& end : sum_ends(names, event)) {
    constexpr std::int32_t kDevicesMax = 1 << 15;
    const std::int32_t pair = end.link.from.value * kDevicesMax + end.link.to.value;
    arrows.push_back({end.begins, flow_id(event, action.group.value, pair, flow_kind(end.link))});
  }
  return arrows;
}

}  // namespace

// The open file, the end of its last entry, and the clock's zero.
struct TraceWriter::File {
  // Entries that stand together, without what separates them from others.
  struct Piece {
    std::int64_t step;
    std::int64_t begin;
    std::int64_t end;
  };
  static constexpr std::int64_t kNoStep = -1;      // Of names, counters and marks.
  static constexpr std::int64_t kBlock = 1 << 20;  // Copied at once.

  std::filesystem::path path;
  int handle = -1;
  std::int64_t origin_ns = 0;
  std::int64_t end = 0;       // Where the closing bracket stands.
  std::vector<Piece> pieces;  // In the order of the file; neighbours are of different steps.

  ~File() {
    if (handle >= 0) ::close(handle);
  }

  Error error(std::string_view doing) const {
    return {Errc::io_failed, std::string(doing) + " failed: " + std::strerror(errno), path.string(),
            ""};
  }

  // Microseconds with three decimals; nothing lies before the origin.
  std::string microseconds(std::int64_t duration_ns) const {
    char text[32];
    const auto count = std::max<std::int64_t>(duration_ns, 0);
    std::snprintf(text, sizeof text, "%lld.%03lld", static_cast<long long>(count / 1000),
                  static_cast<long long>(count % 1000));
    return text;
  }
  std::string time(std::int64_t at_ns) const { return microseconds(at_ns - origin_ns); }

  Status create(const std::filesystem::path& at) {
    path = at;
    handle = ::open(at.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (handle < 0) return error("opening for writing");
    end = 1;
    return write_at("[" + std::string(kEnd), 0);
  }

  // `entries`: each followed by ",\n".
  Status append(std::string entries, std::int64_t step) {
    if (entries.empty()) return Done{};
    entries.resize(entries.size() - 2);
    const std::string_view separator = pieces.empty() ? "\n" : ",\n";
    entries.insert(0, separator);
    const auto begin = end + static_cast<std::int64_t>(separator.size());
    const auto grown = static_cast<std::int64_t>(entries.size());
    entries += kEnd;
    if (auto put = write_at(entries, end); !put) return put;
    end += grown;
    if (!pieces.empty() && pieces.back().step == step) {
      pieces.back().end = end;
    } else {
      pieces.push_back({step, begin, end});
    }
    return Done{};
  }

  // Adds a piece of another file behind the last one; the bracket is left to the caller.
  Status copy(const File& from, const Piece& piece) {
    const std::string_view separator = pieces.empty() ? "\n" : ",\n";
    if (auto put = write_at(separator, end); !put) return put;
    end += static_cast<std::int64_t>(separator.size());
    pieces.push_back({piece.step, end, end + piece.end - piece.begin});
    std::string block;
    for (auto at = piece.begin; at < piece.end; at += static_cast<std::int64_t>(block.size())) {
      block.resize(static_cast<std::size_t>(std::min(kBlock, piece.end - at)));
      if (auto got = from.read_at(block, at); !got) return got;
      if (auto put = write_at(block, end); !put) return put;
      end += static_cast<std::int64_t>(block.size());
    }
    return Done{};
  }

  // Fills `text`; a file that ends before is an error.
  Status read_at(std::string& text, std::int64_t offset) const {
    for (std::size_t have = 0; have < text.size();) {
      const auto got = ::pread(handle, text.data() + have, text.size() - have,
                               offset + static_cast<std::int64_t>(have));
      if (got < 0 && errno == EINTR) continue;
      if (got == 0) errno = EIO;
      if (got <= 0) return error("reading");
      have += static_cast<std::size_t>(got);
    }
    return Done{};
  }

  Status write_at(std::string_view text, std::int64_t offset) const {
    while (!text.empty()) {
      const auto put = ::pwrite(handle, text.data(), text.size(), offset);
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) return error("writing");
      text.remove_prefix(static_cast<std::size_t>(put));
      offset += put;
    }
    return Done{};
  }
};

TraceWriter::TraceWriter() : file_(std::make_unique<File>()) {}
TraceWriter::TraceWriter(TraceWriter&&) noexcept = default;
TraceWriter& TraceWriter::operator=(TraceWriter&&) noexcept = default;
TraceWriter::~TraceWriter() = default;

Result<TraceWriter> TraceWriter::open(const std::filesystem::path& path, std::int64_t origin_ns) {
  std::error_code ignored;  // What is wrong with the folder shows when the file is opened.
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), ignored);
  TraceWriter writer;
  writer.file_->origin_ns = origin_ns;
  if (auto made = writer.file_->create(path); !made) return made.error();
  return writer;
}

Status TraceWriter::set_names(TraceNames names) {
  names_ = std::move(names);
  std::string entries;
  for (const auto& slot : names_.devices) {
    if (!announced_.insert(slot).second) continue;
    const auto node = std::to_string(slot.node.value);
    const auto meta = [&](std::string_view what, const std::string& value) {
      entries += "{\"ph\":\"M\"," + track(slot) + ",\"name\":\"" + std::string(what) +
                 "\",\"args\":{" + value + "}},\n";
    };
    meta("process_name", "\"name\":\"node " + node + "\"");
    meta("process_sort_index", "\"sort_index\":" + node);
    meta("thread_name", "\"name\":\"device " + std::to_string(slot.local_index) + "\"");
  }
  return file_->append(std::move(entries), File::kNoStep);
}

Status TraceWriter::write(std::span<const TraceEvent> events) {
  while (!events.empty()) {
    const auto other = std::find_if(events.begin(), events.end(), [&](const TraceEvent& event) {
      return event.step != events.front().step;
    });
    const auto count = static_cast<std::size_t>(other - events.begin());
    if (auto put = write_of_step(events.first(count)); !put) return put;
    events = events.subspan(count);
  }
  return Done{};
}

Status TraceWriter::write_of_step(std::span<const TraceEvent> events) {
  std::string entries;
  entries.reserve(events.size() * 256);
  for (const auto& event : events) {
    const auto known = event.device.valid() && event.device.index() < names_.devices.size();
    const DeviceSlot slot =
        known ? names_.devices[event.device.index()] : DeviceSlot{NodeId{-1}, event.device.value};
    const auto& action = event.action;
    entries += "{\"ph\":\"X\"," + track(slot) + ",\"ts\":" + file_->time(event.begin_ns) +
               ",\"dur\":" + file_->microseconds(event.duration_ns()) +
               (event.cpu_ns > 0 ? ",\"tdur\":" + file_->microseconds(event.cpu_ns) : "") +
               ",\"name\":" + quoted_text(event_name(names_, action)) + ",\"cat\":\"" +
               std::string(category(action.kind)) + "\",\"args\":{\"kind\":\"" +
               std::string(to_string(action.kind)) + "\",\"step\":" + std::to_string(event.step) +
               ",\"epoch_number\":" + std::to_string(event.epoch_number);
    if (action.stage.valid())
      entries += ",\"stage\":" +
                 (action.stage.index() < names_.stages.size()
                      ? quoted_text(names_.stages[action.stage.index()])
                      : std::to_string(action.stage.value)) +
                 ",\"stage_id\":" + std::to_string(action.stage.value);
    if (action.microbatch.valid())
      entries += ",\"microbatch\":" + std::to_string(action.microbatch.value) +
                 ",\"part\":" + std::to_string(action.part.value);
    if (action.group.valid() && action.group.index() < names_.groups.size())
      entries += ",\"group\":" + quoted_text(names_.groups[action.group.index()]);
    if (event.bytes > 0) entries += ",\"bytes\":" + std::to_string(event.bytes);
    entries += "}},\n";
    for (const auto& arrow : arrows_of(event, names_)) {
      // A beginning binds to the slice around it; so does an end with "bp":"e". The last nanosecond
      // of a receive is when the rows were there.
      const auto at = arrow.begins ? event.begin_ns : std::max(event.begin_ns, event.end_ns - 1);
      entries += std::string("{\"ph\":\"") + (arrow.begins ? "s\"," : "f\",\"bp\":\"e\",") +
                 track(slot) + ",\"ts\":" + file_->time(at) +
                 ",\"id\":" + std::to_string(arrow.id) +
                 ",\"name\":\"message\",\"cat\":\"message\"},\n";
    }
  }
  return file_->append(std::move(entries), events.front().step);
}

Status TraceWriter::write(const TraceCounter& counter) {
  const nlohmann::json value = counter.value;  // Prints NaN as null, which stays valid JSON.
  return file_->append("{\"ph\":\"C\",\"pid\":" + std::to_string(counter.node.value + 1) +
                           ",\"ts\":" + file_->time(counter.time_ns) +
                           ",\"name\":" + quoted_text(counter.name) +
                           ",\"args\":{\"value\":" + value.dump() + "}},\n",
                       File::kNoStep);
}

Status TraceWriter::write(const TraceMark& mark) {
  // Viewers draw one of global scope through all tracks, but want a process for it.
  const bool is_global = !mark.node.valid();
  std::string entry = std::string("{\"ph\":\"i\",\"s\":") + (is_global ? "\"g\"" : "\"p\"") +
                      ",\"pid\":" + std::to_string(is_global ? 1 : mark.node.value + 1) +
                      ",\"tid\":1,\"ts\":" + file_->time(mark.time_ns) +
                      ",\"name\":" + quoted_text(mark.name);
  if (mark.step > 0)
    entry += ",\"cat\":\"event\",\"args\":{\"step\":" + std::to_string(mark.step) +
             ",\"kind\":" + quoted_text(mark.kind) + ",\"why\":" + quoted_text(mark.why) + "}";
  return file_->append(entry + "},\n", File::kNoStep);
}

Status TraceWriter::keep(const std::function<bool(std::int64_t step)>& wanted) {
  const auto path = file_->path;
  const auto temporary = path.string() + ".tmp-" + std::to_string(::getpid());
  auto fresh = std::make_unique<File>();
  fresh->origin_ns = file_->origin_ns;
  auto done = fresh->create(temporary);
  for (const auto& piece : file_->pieces)
    if (done && (piece.step == File::kNoStep || wanted(piece.step)))
      done = fresh->copy(*file_, piece);
  if (done) done = fresh->write_at(kEnd, fresh->end);
  if (done && ::rename(temporary.c_str(), path.c_str()) != 0) done = fresh->error("renaming");
  if (!done) {
    ::unlink(temporary.c_str());
    return done;
  }
  fresh->path = path;
  file_ = std::move(fresh);
  return Done{};
}

std::int64_t TraceWriter::bytes() const { return file_->end; }

std::map<std::int64_t, std::int64_t> TraceWriter::bytes_by_step() const {
  std::map<std::int64_t, std::int64_t> bytes;
  for (const auto& piece : file_->pieces)
    if (piece.step != File::kNoStep) bytes[piece.step] += piece.end - piece.begin;
  return bytes;
}

}  // namespace troupe::observe

#include "runtime/data/bad_sample.hpp"

#include <nlohmann/json.hpp>

namespace troupe::data {

std::string_view to_string(BadKind kind) {
  switch (kind) {
    case BadKind::malformed_record: return "malformed record";
    case BadKind::marker_mismatch: return "marker mismatch";
    case BadKind::no_encoder: return "no encoder";
    case BadKind::no_trained_token: return "no trained token";
    case BadKind::missing_file: return "missing file";
    case BadKind::unreadable_media: return "unreadable media";
    case BadKind::too_long: return "too long";
  }
  return "unknown";
}

std::string to_string(const BadSample& bad) {
  std::string text = "sample " + bad.id + " (" + bad.where + "): ";
  if (!bad.file.empty()) text += bad.file + ": ";
  return text + bad.reason;
}

std::string to_json_line(const BadSample& bad, std::int64_t epoch, std::int64_t position) {
  nlohmann::ordered_json line;
  line["id"] = bad.id;
  line["kind"] = to_string(bad.kind);
  line["file"] = bad.file;
  line["where"] = bad.where;
  line["reason"] = bad.reason;
  line["epoch"] = epoch;
  line["position"] = position;
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

Result<BadSampleLog> BadSampleLog::open(const std::filesystem::path& path) {
  std::error_code code;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), code);
  BadSampleLog log;
  log.path_ = path;
  log.file_.open(path, std::ios::app | std::ios::binary);
  if (!log.file_)
    return Error{Errc::io_failed, "cannot open the list of bad samples for writing", path.string(),
                 "check the folder's permissions and the space left"};
  return log;
}

Status BadSampleLog::add(const BadSample& bad, std::int64_t epoch, std::int64_t position) {
  file_ << to_json_line(bad, epoch, position) << '\n' << std::flush;
  if (!file_)
    return Error{Errc::io_failed, "cannot write to the list of bad samples", path_.string(),
                 "check the space left"};
  ++count_;
  return Done{};
}

}  // namespace troupe::data

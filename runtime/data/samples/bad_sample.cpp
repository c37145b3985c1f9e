#include "runtime/data/samples/bad_sample.hpp"

#include <utility>

#include "runtime/data/samples/bad_sample_json.hpp"

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

std::string_view fix_of(BadKind kind) {
  switch (kind) {
    case BadKind::malformed_record: return "correct the record, or take it out of the list";
    case BadKind::marker_mismatch:
      return "write one marker per file into the text, in the order of the files";
    case BadKind::no_encoder: return "give the job an encoder for such files, or take them out";
    case BadKind::no_trained_token: return "give it an answer to train on, or take it out";
    case BadKind::missing_file:
      return "check the path; it starts from the media folder of data.sources";
    case BadKind::unreadable_media: return "replace the file, or take the sample out";
    case BadKind::too_long:
      return "raise data.max_seq_len, lower data.max_pixels, or split the sample";
  }
  return "take the sample out";
}

BadSample bad_media(const Record& record, std::string file, Error why) {
  const bool missing = why.code == Errc::not_found;
  const BadKind kind = missing ? BadKind::missing_file : BadKind::unreadable_media;
  if (missing || why.fix.empty()) why.fix = fix_of(kind);
  return {record.id,         kind, std::move(file), record.where, std::move(why.message),
          std::move(why.fix)};
}

BadSample too_long(std::string id, std::string where, std::int64_t tokens, std::int64_t limit) {
  constexpr auto kind = BadKind::too_long;
  return {std::move(id),
          kind,
          {},
          std::move(where),
          "it has " + std::to_string(tokens) +
              " tokens, more than data.max_seq_len = " + std::to_string(limit),
          std::string(fix_of(kind))};
}

std::string to_string(const BadSample& bad) {
  std::string text = "sample " + bad.id + " (" + bad.where + "): ";
  if (!bad.file.empty()) text += bad.file + ": ";
  text += bad.reason;
  return bad.fix.empty() ? text : text + "; " + bad.fix;
}

nlohmann::ordered_json to_json(const BadSample& bad) {
  return {{"id", bad.id},       {"kind", to_string(bad.kind)}, {"file", bad.file},
          {"where", bad.where}, {"reason", bad.reason},        {"fix", bad.fix}};
}

std::string to_json_line(const BadSample& bad, std::int64_t epoch, std::int64_t position) {
  nlohmann::ordered_json line = to_json(bad);
  line["epoch"] = epoch;
  line["position"] = position;
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace troupe::data

// How a list of samples may be written: LLaVA's JSON, and formats that a program or plug-in adds.
//
// A format turns the text of one file into records. It decodes no media and knows no model. What it
// returns is checked here; what only one sample lacks is that sample's defect.

#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/formats/record.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::data {

/// All records of a file, in its order. `text`: all of it, as bytes; `file`: what to call it in
/// `Record::where`, and in errors. Paths of media are relative to the source's `media` folder.
/// `Record::id` and `where` may be left out, `source` is filled in. A record that cannot be a
/// sample says why in `defect`: it is left out of training, and counted.
///
/// A function of its arguments alone, and thread-safe: every node of a job reads the file, and must
/// find the same.
using ReadRecords =
    std::function<Result<std::vector<Record>>(std::string_view text, const std::string& file)>;

/// How a list of samples may be written.
struct Format {
  std::string name;  ///< As `data.sources[].format` says it: small letters, digits, `-` and `_`.
  ReadRecords read;
};

/// Adds a format for the rest of the process. Call it before a job is read. Thread-safe.
/// Errors: invalid_argument: a name that is taken or not spelled so, or no function.
Status register_format(Format format);

/// The built-in one first, then in the order in which they came.
std::vector<std::string> format_names();

/// Errors: invalid_argument: no format is called so; the nearest is given.
Status check_format(const std::string& name);

/// Reads a file's text in the format of that name. Ids that are left out become `FILE#PLACE`, PLACE
/// counting from 0.
///
/// Errors:
/// - invalid_argument: as `check_format`.
/// - bad_data: what the format says of the file; an added one throws, finds no record, or makes an
///   id that is no UTF-8: the message names it.
Result<std::vector<Record>> read_records(const std::string& format, std::string_view text,
                                         const std::string& file);

}  // namespace troupe::data

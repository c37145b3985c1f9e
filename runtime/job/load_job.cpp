#include "runtime/job/load_job.hpp"

#include <algorithm>

#include "runtime/files/file_reads.hpp"
#include "runtime/job/bind_job.hpp"
#include "runtime/job/check_job.hpp"
#include "runtime/job/document.hpp"
#include "runtime/job/findings.hpp"
#include "runtime/job/read_text.hpp"
#include "runtime/job/toml_text.hpp"

namespace troupe::job {

namespace fs = std::filesystem;

namespace {

constexpr std::uintmax_t kFileBytesMax = 4 << 20;  // A job file is written by hand.

fs::path real_path(const fs::path& file) {
  const files::ReadingFile reading(file);
  return fs::weakly_canonical(file);
}

/// Reads files and what they extend into one tree.
class Assembler {
 public:
  explicit Assembler(Findings& findings) : findings_(findings) {}

  /// Lays `file` with its bases on `root`.
  void add_file(const fs::path& file, Value& root) {
    const auto id = real_path(file);
    if (const auto found = std::find(open_.begin(), open_.end(), id); found != open_.end())
      return report_cycle(found);
    const auto text = read_text(file, kFileBytesMax, {"job file", "as configs/demo.toml"});
    if (!text.ok()) return findings_.problems.push_back(at_extends(text.error()));
    open_.push_back(id);
    add_text(text.value(), std::make_shared<Source>(Source{file.string(), file.parent_path()}),
             root);
    open_.pop_back();
  }

  void add_text(const std::string& text, std::shared_ptr<const Source> source, Value& root) {
    auto parsed = parse_toml(text, source);
    if (!parsed.ok()) return findings_.problems.push_back(std::move(parsed).error());
    if (const Value* bases = parsed.value().find("extends")) add_bases(*bases, root);
    merge(root, parsed.value());
  }

 private:
  void add_bases(const Value& bases, Value& root) {
    const Value::Array one{bases};
    for (const auto& base : bases.array() != nullptr ? *bases.array() : one) {
      const auto* path = std::get_if<std::string>(&base.data);
      if (path == nullptr) {
        findings_.add(Errc::invalid_argument, base.where(),
                      "extends: expected a file, found " + base.shown(),
                      "write extends = \"base.toml\" or a list of files");
        continue;
      }
      extends_where_ = base.where();
      add_file(base.source->folder / *path, root);
      extends_where_.clear();
    }
  }

  /// A base that cannot be read is the fault of the line that names it.
  Error at_extends(Error error) const {
    if (extends_where_.empty()) return error;
    error.message = "extends: " + error.where + ": " + error.message;
    error.where = extends_where_;
    error.fix = "correct the path; it starts from the folder of the file that names it";
    return error;
  }

  void report_cycle(std::vector<fs::path>::const_iterator begin) {
    std::string cycle;
    for (auto at = begin; at != open_.cend(); ++at) cycle += at->filename().string() + " -> ";
    findings_.add(Errc::invalid_argument, extends_where_,
                  "extends: a cycle: " + cycle + begin->filename().string(),
                  "remove one extends of the cycle");
  }

  Findings& findings_;
  std::vector<fs::path> open_;  // Files being read, outermost first.
  std::string extends_where_;
};

/// What the command line says. All of it is one layer: `merge` is asked first what it replaces.
void apply_overrides(const std::vector<std::string>& overrides, Value& root, Findings& findings) {
  const auto source = std::make_shared<Source>(Source{"command line", fs::path{}});
  Value layer{Value::Table{}, source, 0, {}};
  for (const auto& text : overrides) {
    const auto equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      findings.add(Errc::invalid_argument, "command line", "'" + text + "' is no key.path=value",
                   "write for instance train.steps=10");
      continue;
    }
    auto value = parse_override(text.substr(equals + 1), source);
    if (!value.ok()) {
      findings.problems.push_back(std::move(value).error());
      continue;
    }
    const auto key = text.substr(0, equals);
    const bool says_duration = key == "train.steps" || key == "train.epochs" ||
                               key == "train.samples" || key == "train.tokens";
    // Through the layer, so that steps replace a file's epochs but not the command line's own.
    const auto done =
        says_duration ? set(layer, key, value.value()) : set(root, key, value.value());
    if (!done.ok()) findings.problems.push_back(done.error());
  }
  merge(root, layer);
}

JobReading finish(Value root, const std::vector<std::string>& overrides, Findings findings) {
  JobReading reading;
  if (findings.problems.empty()) {
    apply_overrides(overrides, root, findings);
    auto bound = bind_job(root, findings);
    check_job(bound, findings);
    if (findings.problems.empty()) check_effects(bound.job, findings);
    reading.loaded.job = std::move(bound.job);
  }
  reading.loaded.origins = std::move(findings.origins);
  reading.loaded.warnings = std::move(findings.warnings);
  reading.problems = std::move(findings.problems);
  return reading;
}

Value empty_root(const std::string& name) {
  return Value{Value::Table{}, std::make_shared<Source>(Source{name, fs::path{}}), 0, {}};
}

}  // namespace

JobReading read_job(const fs::path& file, const std::vector<std::string>& overrides) {
  Findings findings;
  findings.file = file.string();
  Value root = empty_root(file.string());
  Assembler{findings}.add_file(file, root);
  return finish(std::move(root), overrides, std::move(findings));
}

JobReading parse_job(const std::string& text, const std::string& name,
                     const std::vector<std::string>& overrides, Paths paths) {
  Findings findings;
  findings.file = name;
  findings.paths = paths;
  Value root = empty_root(name);
  Assembler{findings}.add_text(text, std::make_shared<Source>(Source{name, fs::path{}}), root);
  return finish(std::move(root), overrides, std::move(findings));
}

Result<LoadedJob> load_job(const fs::path& file, const std::vector<std::string>& overrides) {
  auto reading = read_job(file, overrides);
  if (reading.ok()) return std::move(reading.loaded);
  return one_error(reading.problems, "`troupe validate " + file.string() + "` shows all");
}

}  // namespace troupe::job

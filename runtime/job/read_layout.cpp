#include "runtime/job/read_layout.hpp"

#include <memory>
#include <utility>

#include "runtime/job/bind_job.hpp"
#include "runtime/job/check_job.hpp"
#include "runtime/job/findings.hpp"
#include "runtime/job/read_text.hpp"
#include "runtime/job/toml_text.hpp"

namespace troupe::job {

namespace {

constexpr std::size_t kLayoutBytesMax = 1 << 20;  // Thousands of nodes.

/// Each copy of the llm trains samples of its own.
void check_copies(const Job& job, const HandLayout& layout, Findings& findings) {
  const std::int64_t batch = job.train.global_batch_size;
  for (const auto& module : job.modules) {
    const auto copies = std::ssize(layout.copies_of(module.name));
    if (module.kind != ModuleKind::llm || copies <= batch) continue;
    findings.add_at(layout.pipelines.empty() ? "parallel.replicas" : "parallel.pipelines",
                    std::to_string(copies) + " copies of " + module.name +
                        ", but the job's train.global_batch_size is " + std::to_string(batch) +
                        ": less than one sample for each",
                    "write at most " + std::to_string(batch) + " of them");
  }
}

}  // namespace

Result<std::string> read_layout_text(const std::filesystem::path& file) {
  return read_text(file, kLayoutBytesMax,
                   {"layout file", "with [[parallel.pipelines]] or [[parallel.replicas]]"});
}

Result<WrittenLayout> read_layout(const std::string& text, const std::string& name,
                                  const Job& job) {
  if (text.size() > kLayoutBytesMax)
    return Error{Errc::invalid_argument, "larger than 1 MiB; this is no layout file", name,
                 "name a layout file"};
  auto parsed = parse_toml(text, std::make_shared<Source>(Source{name, {}}));
  if (!parsed.ok()) return std::move(parsed).error();
  Findings findings;
  findings.file = name;
  std::vector<std::string> modules;
  for (const auto& module : job.modules) modules.push_back(module.name);
  WrittenLayout written;
  written.layout = bind_layout_file(parsed.value(), modules, findings);
  if (findings.problems.empty()) {
    check_hand_layout(job, written.layout, "parallel", findings);
    check_copies(job, written.layout, findings);
  }
  if (!findings.problems.empty())
    return one_error(findings.problems, "they show once these are corrected");
  written.origins = std::move(findings.origins);
  return written;
}

}  // namespace troupe::job

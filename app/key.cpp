// `troupe key`: what the machines of a job show each other.

#include "runtime/door/job_key.hpp"

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "app/commands.hpp"
#include "app/read_limits.hpp"
#include "app/terminal.hpp"
#include "runtime/files/file_reads.hpp"

namespace troupe::app {

namespace {

int make_key(const std::string& file) {
  const files::ReadingFile writing(file, files::FileUse::write);
  if (auto written = door::write_key(file, door::JobKey::random()); !written.ok())
    return report(written.error());
  std::cout << "a new key: " << file << " (mode 600: for you alone)\n"
            << "Copy it to every machine of the job, and say where it lies there:\n"
            << "  the job file    [cluster] key = \"FILE\"\n"
            << "  other machines  troupe node --join HOST:PORT --key FILE\n";
  return kDone;
}

}  // namespace

void add_key(Commands& commands) {
  auto* key = commands.root.add_subcommand("key", "Keys that let machines into a job");
  key->require_subcommand(1);
  auto* make = key->add_subcommand("new", "Make a key for a job of several machines");
  auto file = std::make_shared<std::string>();
  make->add_option("FILE", *file, "Where to put it")->required();
  auto timeout = std::make_shared<ReadTimeout>();
  timeout->add_to(*make);
  make->callback([&commands, file, timeout] {
    commands.exit_code = timeout->limit([&] { return make_key(*file); });
  });
}

}  // namespace troupe::app

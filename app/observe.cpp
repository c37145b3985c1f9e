// `troupe observe`: what a running job computes, printed or shown to an observer of the user's.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <exception>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "actors/link/observing.hpp"
#include "app/commands.hpp"
#include "app/observed_lines.hpp"
#include "app/read_limits.hpp"
#include "app/signals.hpp"
#include "app/terminal.hpp"
#include "app/watch.hpp"
#include "runtime/plugins/load_plugin.hpp"
#include "runtime/plugins/user_calls.hpp"

namespace troupe::app {

namespace {

struct Options {
  std::string job;
  WatchOptions watch;
  std::vector<std::string> kinds;
  bool json = false, values = false;
  std::vector<std::string> plugins;
  std::string observer, folder;
  ReadTimeout timeout;
};

volatile std::sig_atomic_t stopped_by = 0;

/// From now on a first signal ends the look in order, and a second one the process.
void end_in_order_on_signals() {
  struct sigaction action {};
  action.sa_handler = [](int signal) { stopped_by = signal; };
  action.sa_flags = SA_RESETHAND | SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM})
    if (ends_process(signal)) sigaction(signal, &action, nullptr);
}

/// Says how many parts were missed: at the first one, and whenever they have doubled since.
class Losses {
 public:
  void tell(std::int64_t missed) {
    if (missed < next_) return;
    next_ = 2 * missed;
    std::cerr << "troupe: " + counted(missed, "part") +
                     " missed: raise --every or --queue, or look at fewer kinds or modules\n";
  }

 private:
  std::int64_t next_ = 1;
};

Error cannot_make(const std::string& name, const std::string& why) {
  return {Errc::invalid_argument, "observer '" + name + "' cannot be made: " + why, "--observer",
          "see what it needs: --options, --folder"};
}

/// Says in which function of an observer this process is, so that one that does not return is
/// named. Who prints lines is none of a user's: a pipe may hold it up for as long as nobody reads.
class Named final : public observers::Observer {
 public:
  Named(std::string name, std::unique_ptr<observers::Observer> observer)
      : name_(std::move(name)), observer_(std::move(observer)) {}
  ~Named() override {
    const plugins::CallingUser calling(call_of("destructor", name_));
    observer_.reset();
  }

  void see(const observers::Observed& part) override {
    const plugins::CallingUser calling(call_of("see", name_));
    observer_->see(part);
  }
  void see(const observers::ObservedStep& step) override {
    const plugins::CallingUser calling(call_of("see", name_));
    observer_->see(step);
  }
  void end() override {
    const plugins::CallingUser calling(call_of("end", name_));
    observer_->end();
  }

  static std::string call_of(const std::string& function, const std::string& observer) {
    return "`" + function + "` of observer '" + observer + "'";
  }

 private:
  const std::string name_;
  std::unique_ptr<observers::Observer> observer_;
};

/// One that a plug-in registered, or the program that this is linked into.
Result<std::unique_ptr<observers::Observer>> make_observer(const Options& options) {
  const std::string& name = options.observer;
  const auto* kind = observers::find_observer(name);
  if (kind == nullptr) {
    std::string known;
    for (const auto& one : observers::observer_names()) known += (known.empty() ? "" : ", ") + one;
    return Error{
        Errc::invalid_argument,
        "no observer is called '" + name + "'" + (known.empty() ? "" : "; there is " + known),
        "--observer", "name the plug-in that has it: --plugin FILE"};
  }
  const observers::Place place{options.job, 0, options.folder.empty() ? name : options.folder,
                               options.watch.what.options};
  try {
    std::filesystem::create_directories(place.folder);
    const plugins::CallingUser calling(Named::call_of("make", name));
    auto made = kind->make(place);
    if (made == nullptr) return cannot_make(name, "its `make` gives none");
    return std::unique_ptr<observers::Observer>(std::make_unique<Named>(name, std::move(made)));
  } catch (const std::exception& fault) {
    return cannot_make(name, fault.what());
  } catch (...) {
    return cannot_make(name, "it throws no std::exception");
  }
}

Result<std::unique_ptr<observers::Observer>> who_looks(const Options& options) {
  for (const auto& plugin : options.plugins)
    if (auto loaded = plugins::load_plugin(plugin); !loaded.ok()) return std::move(loaded).error();
  if (!options.observer.empty()) return make_observer(options);
  return std::unique_ptr<observers::Observer>(
      std::make_unique<ObservedLines>(options.json, options.values));
}

void take_kinds(Options& options) {
  if (options.kinds.empty()) return;
  const auto is_wanted = [&](const char* kind) {
    return std::find(options.kinds.begin(), options.kinds.end(), kind) != options.kinds.end();
  };
  options.watch.what.rows = is_wanted(kKinds[0]);
  options.watch.what.gradients = is_wanted(kKinds[1]);
  options.watch.what.losses = is_wanted(kKinds[2]);
}

int look(Options& options) {
  take_kinds(options);
  const auto observer = who_looks(options);
  if (!observer.ok()) return report(observer.error());
  Losses losses;
  bool is_first = true;
  options.watch.goes_on = [&](const Watched& watched) {
    if (std::exchange(is_first, false)) end_in_order_on_signals();  // Nobody looks before.
    losses.tell(watched.missed);
    return stopped_by == 0;
  };
  const auto watched = watch(options.job, *observer.value(), options.watch);
  if (!watched.ok()) return report(watched.error());
  losses.tell(watched.value().missed);
  print_end(watched.value(), options.json);
  return stopped_by != 0 ? report_signal(stopped_by, "") : kDone;
}

void add_observer_options(CLI::App& command, Options& options) {
  auto* observer = command.add_option("--observer", options.observer,
                                      "Show it to this observer of a plug-in instead of printing");
  command.add_option("--plugin", options.plugins, "A library that has it; once for each")
      ->allow_extra_args(false)
      ->type_name("FILE.so");
  command.add_option("--options", options.watch.what.options, "For the observer alone")
      ->needs(observer);
  command.add_option("--folder", options.folder, "Where it writes; default: its name, here")
      ->needs(observer)
      ->type_name("FOLDER");
  command.add_flag("--values", options.values, "With --json: all numbers, too")->excludes(observer);
}

}  // namespace

void add_observe(Commands& commands) {
  auto options = std::make_shared<Options>();
  auto* command = commands.add("observe", "Look at what a running job computes", [options] {
    return options->timeout.limit([&] { return look(*options); });
  });
  command->add_option("JOB", options->job, "The job's run folder, or where it listens")
      ->required()
      ->type_name("RUN|HOST:PORT");
  command->add_option("--module", options->watch.what.module, "This one alone; default: all");
  command->add_option("--kind", options->kinds, "What of them, once for each; default: rows")
      ->allow_extra_args(false)
      ->check(CLI::IsMember({kKinds[0], kKinds[1], kKinds[2]}));
  command->add_option("--every", options->watch.what.every_steps, "In steps that this divides")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--steps", options->watch.steps, "End behind so many steps; 0: with the job")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command
      ->add_option("--queue", options->watch.what.queue,
                   "Parts that may wait on a node; what comes beyond is dropped and counted")
      ->check(CLI::Range(std::int64_t{1}, actors::kQueueMax))
      ->capture_default_str();
  command->add_option("--key", options->watch.key_file,
                      "The job's key, for HOST:PORT; default: TROUPE_KEY, or of your job here");
  command->add_flag("--json", options->json,
                    "A JSON object a line; the last one says how it ended");
  add_observer_options(*command, *options);
  options->timeout.add_to(*command);
}

}  // namespace troupe::app

// troupe: looks at runs, and acts on them, from the command line.

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "tools/troupe/manual.hpp"
#include "tools/troupe/runs.hpp"
#include "tools/troupe/storage.hpp"
#include "tools/troupe/sweeps.hpp"
#include "tools/troupe/verbs.hpp"
#include "troupe/runtime/near_names.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::tool {

expected<fs::path> run_arguments::path() const {
  return storage_folder(storage).and_then(
    [&](const fs::path& folder) { return find_run(run, folder); });
}

expected<run_arguments::folder> run_arguments::run_or_sweep() const {
  TROUPE_TRY(auto among, storage_folder(storage));
  TROUPE_TRY(auto sweep, find_sweep(run, among));
  if (sweep)
    return folder{*sweep, true};
  return find_run(run, among).map([](fs::path x) {
    return folder{std::move(x), false};
  });
}

void add_folder_of_runs(CLI::App& app, std::string& to) {
  app
    .add_option("FOLDER", to,
                "a folder of runs; or a sweep: its name, its folder, or\n"
                "the first 6 digits of its id or more (default: the\n"
                "folder that --storage names)")
    ->option_text(" ")
    ->check(not_empty);
}

void add_storage(CLI::App& app, std::string& to) {
  app
    .add_option("-s,--storage", to,
                "the folder of runs (default: $TROUPE_STORAGE, else\n"
                "~/troupe_results)")
    ->option_text("FOLDER")
    ->check(not_empty);
}

void add_json(CLI::App& app, bool& to) {
  app.add_flag("--json", to, "print JSON; its names are stable");
}

std::shared_ptr<run_arguments> add_run_arguments(CLI::App& app) {
  auto x = std::make_shared<run_arguments>();
  app
    .add_option("RUN", x->run,
                "its name, its folder, or the first 6 digits of its id\n"
                "or more")
    ->option_text(" ")
    ->required()
    ->check(not_empty);
  add_storage(app, x->storage);
  add_json(app, x->json);
  return x;
}

namespace {

constexpr auto about_program =
  "Looks at the runs in a storage folder, and acts on them.";

constexpr auto program_notes =
  R"(A run is named by its name in the storage folder, by the path of its folder, or
by the first 6 digits of its id or more. Colors appear on terminals only, and
not if NO_COLOR is set, or TERM is not set or dumb.
Exit codes: 0 done; 1 something could not be done or read, or is damaged; 2 wrong
arguments, or a run or folder that does not exist.)";

/// The verb that was given, if any.
const CLI::App& chosen(const CLI::App& app) {
  auto verbs = app.get_subcommands();
  return verbs.empty() ? app : *verbs.front();
}

int refuse(const CLI::App& app, const std::string& why) {
  auto& part = chosen(app);
  return refuse_arguments(
    &part == &app ? "troupe" : "troupe " + part.get_name(), one_line(why));
}

/// What is wrong with the arguments *left*, of which no verb is known.
std::string no_verb_text(const CLI::App& app,
                         const std::vector<std::string>& left) {
  std::vector<std::string> names;
  for (auto part : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(part->get_name());
  auto first = std::ranges::find_if(
    left, [](const std::string& x) { return !x.starts_with('-'); });
  if (first == left.end())
    return "there is no option " + left.front();
  return "there is no verb '" + *first + '\''
         + internal::near_names(*first, {names.begin(), names.end()});
}

/// What is wrong with the arguments that nothing has taken.
std::string extras_text(const CLI::App& app) {
  auto& part = chosen(app);
  auto left = app.remaining(); // before the verb
  if (!left.empty() && (&part == &app || !left.front().starts_with('-')))
    return no_verb_text(app, left);
  if (!left.empty())
    return internal::concat("options follow the verb, as in troupe ",
                            part.get_name(), ' ', internal::joined(left, " "));
  left = part.remaining();
  return internal::concat(left.size() == 1 ? "this argument was"
                                           : "these arguments were",
                          " not expected: ", internal::joined(left, " "));
}

int run(int argc, char** argv) {
  CLI::App app{about_program, "troupe"};
  app.footer(program_notes);
  app.set_version_flag("--version", "troupe " TROUPE_VERSION,
                       "print the version and exit");
  app.require_subcommand(0, 1);
  app.get_formatter()->label("SUBCOMMAND", "VERB");
  action todo;
  for (auto& x : all_verbs()) {
    auto part = app.add_subcommand(x.name, x.about);
    // A verb's action may refer to its arguments, which it owns.
    part->callback([&todo, act = x.define(*part)] { todo = act; });
  }
  add_manual(app, todo);
  for (auto part : app.get_subcommands([](CLI::App*) { return true; }))
    part->group("Verbs");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    print(app.help());
    return done;
  } catch (const CLI::CallForVersion& x) {
    print(std::string{x.what()} + '\n');
    return done;
  } catch (const CLI::ExtrasError&) {
    return refuse(app, extras_text(app));
  } catch (const CLI::ParseError& e) {
    return refuse(app, e.what());
  }
  if (!todo) {
    std::fputs(app.help().c_str(), stderr);
    return wrong_arguments;
  }
  auto code = todo();
  if (code)
    return *code;
  std::fprintf(stderr, "troupe %s: %s\n", chosen(app).get_name().c_str(),
               one_line(code.error().message).c_str());
  return code.error().code == ec::invalid_argument ? wrong_arguments : failed;
}

} // namespace

} // namespace troupe::tool

int main(int argc, char** argv) {
  // Exceeding a file size limit is an error of the write, not a signal.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    return troupe::tool::run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "troupe: %s\n", e.what());
    return troupe::tool::failed;
  }
}

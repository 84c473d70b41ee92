#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <memory>

#include "tools/troupe/runs.hpp"
#include "tools/troupe/verbs.hpp"
#include "troupe/callbacks/csv/csv.hpp"
#include "troupe/callbacks/status_text.hpp"
#include "troupe/runtime/checkpoint/manifest.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/store/run_folder.hpp"
#include "troupe/runtime/text.hpp"

// troupe rm: removes a run, and nothing that is not Troupe's.

namespace troupe::tool {

using namespace internal;

namespace {

/// For ranks whose driver is gone, which end by themselves.
constexpr auto ranks_limit = std::chrono::seconds{10};

struct rm_arguments {
  std::shared_ptr<run_arguments> run;
  bool yes = false;
  bool gone = false;
};

bool is_number(std::string_view x) {
  return !x.empty() && x.find_first_not_of("0123456789") == x.npos;
}

bool is_own_file_of_run(std::string_view name) {
  return run_layout::kind_of(name) == run_layout::entry_kind::file
         || run_layout::plain_name(name) == csv_options{}.file;
}

/// TensorBoard's.
bool is_event_file(std::string_view name) {
  return name.starts_with("events.out.tfevents.")
         || name.starts_with("former.");
}

/// The log of a rank, its stacks, or the file that an agent tries the storage
/// with.
bool is_log(std::string_view name) {
  auto plain = run_layout::plain_name(name);
  auto dot = plain.find('.');
  if (dot == plain.npos)
    return plain == "agent" && plain != name;
  auto ending = plain.substr(dot);
  return plain.starts_with("rank_") && is_number(plain.substr(5, dot - 5))
         && (ending == ".log" || ending == ".stacks");
}

/// Removes what belongs to the run, and notes what stays.
class remover {
public:
  remover(const held_folder& run, const saved_run* state, std::string id)
    : run_(run), state_(state), id_(std::move(id)) {}

  expected<void> remove_all() {
    using namespace run_layout;
    TROUPE_TRY_VOID(remove_in(
      checkpoints, [this](const held_folder& folder, const std::string& name) {
        return is_own_checkpoint(folder, name);
      }));
    TROUPE_TRY_VOID(remove_in(logs, [](auto&, const std::string& name) {
      return expected<bool>{is_log(name)};
    }));
    TROUPE_TRY_VOID(remove_in(tensorboard, [](auto&, const std::string& name) {
      return expected<bool>{is_event_file(name)};
    }));
    for (auto& x : entries)
      if (x.kind == entry_kind::tree)
        TROUPE_TRY_VOID(run_.remove_tree(std::string{x.name}));
    TROUPE_TRY(auto names, run_.names());
    for (auto& name : names)
      if (is_own_file_of_run(name))
        TROUPE_TRY_VOID(run_.remove_file(name));
    // Until here the folder is a run's: an interrupted removal can be repeated.
    for (std::string name : {state, description})
      TROUPE_TRY_VOID(run_.remove_file(name + ".new"));
    for (auto name : {state, description, ranks})
      TROUPE_TRY_VOID(run_.remove_file(name));
    TROUPE_TRY_VOID(remove_in(attempts, [](auto&, const std::string& name) {
      return expected<bool>{is_number(name)};
    }));
    TROUPE_TRY_VOID(run_.remove_file(lock));
    TROUPE_TRY(auto left, run_.names());
    for (auto& name : left)
      // NFS keeps what this process has open under such a name until then.
      if (kind_of(name) != entry_kind::shared && !name.starts_with(".nfs"))
        left_.push_back(name);
    return {};
  }

  const std::vector<std::string>& left() const noexcept { return left_; }

private:
  template <class IsOwn>
  expected<void> remove_in(const std::string& name, IsOwn is_own) {
    TROUPE_TRY(auto found, run_.look_up_link(name));
    if (!found.exists())
      return {};
    TROUPE_TRY(auto folder, run_.existing(name));
    TROUPE_TRY(auto names, folder.names());
    auto is_empty = true;
    for (auto& x : names) {
      TROUPE_TRY(auto own, is_own(folder, x));
      if (own) {
        TROUPE_TRY_VOID(folder.remove_tree(x));
      } else {
        left_.push_back(name + '/' + x);
        is_empty = false;
      }
    }
    return is_empty ? run_.remove_tree(name) : expected<void>{};
  }

  expected<bool> is_own_checkpoint(const held_folder& folder,
                                   const std::string& name) {
    for (auto prefix : {run_layout::staging_prefix, run_layout::evicted_prefix,
                        run_layout::rotten_prefix})
      if (name.starts_with(prefix))
        return true;
    TROUPE_TRY(auto found, folder.look_up_link(name));
    if (!found.is_folder())
      return false;
    auto its = read_manifest(folder, name);
    if (!its) { // Damaged, but known as one of the run's.
      auto is_it = [&](const kept_checkpoint& x) {
        return x.data.name() == name;
      };
      return state_ && std::ranges::any_of(state_->checkpoints, is_it);
    }
    if (its->run_id != id_ && !its->run_id.empty())
      return false;
    return unlisted_files(folder.path() / name, *its)
      .map([](const std::vector<std::string>& users) { return users.empty(); });
  }

  const held_folder& run_;
  const saved_run* state_;
  std::string id_;
  std::vector<std::string> left_;
};

expected<bool> user_agrees(const found_run& run) {
  if (::isatty(STDIN_FILENO) != 1)
    return failure(ec::invalid_argument,
                   "there is no terminal to ask: --yes removes " + run.name);
  std::fprintf(
    stderr, "Remove %s (%s, %s, %s) in %s? [y/N] ", one_line(run.name).c_str(),
    run.state_name().c_str(), counted(run.reports, "report").c_str(),
    counted(run.state ? run.state->checkpoints.size() : 0, "checkpoint")
      .c_str(),
    one_line(run.path.string()).c_str());
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

error is_live(const found_run& run) {
  return {ec::conflict,
          "the run " + run.path.string() + " has a driver, "
            + to_string(*run.driver)
            + (run.presence == driver_presence::live
                 ? ": stop it first"
                 : ", which cannot be seen from here: --gone says that it has "
                   "ended")};
}

std::string text_of_left(const fs::path& path) {
  auto found = look_up_link(path);
  return path.string()
         + (found && found->is_folder() ? ", which has files that are not "
                                          "Troupe's"
                                        : ", which is not Troupe's");
}

expected<int> rm(const rm_arguments& x) {
  TROUPE_TRY(auto path, x.run->path());
  TROUPE_TRY_VOID(expect_own_run(path));
  auto run = read_run(path);
  if (run.presence == driver_presence::live
      || (run.presence == driver_presence::elsewhere && !x.gone))
    return tl::unexpected{is_live(run)};
  if (!x.yes) {
    TROUPE_TRY(auto agreed, user_agrees(run));
    if (!agreed)
      return failed;
  }
  // Refuses a folder of another user, and whoever has started it meanwhile.
  TROUPE_TRY(auto held,
             run_folder::open(path.parent_path(), path.filename().string()));
  // A driver that was killed may have left ranks, which write on.
  TROUPE_TRY_VOID(held->await_ranks(ranks_limit));
  remover all{held->files(), run.state ? &*run.state : nullptr,
              run.description ? run.description->id : ""};
  TROUPE_TRY_VOID(all.remove_all());
  held.reset();
  if (all.left().empty() && ::rmdir(path.c_str()) != 0)
    return tl::unexpected{storage_error("remove", path, errno)};
  if (x.run->json) {
    print_json({{"path", utf8_text(path.string())},
                {"removed", all.left().empty()},
                {"left", all.left()}});
  } else {
    print("removed " + one_line(path.string())
          + (all.left().empty() ? "\n" : ", but for:\n"));
    for (auto& name : all.left())
      complain(text_of_left(path / name));
  }
  return all.left().empty() ? done : failed;
}

} // namespace

verb rm_verb() {
  return {"rm",
          "Removes a run that has no driver, and nothing that is not Troupe's.",
          [](CLI::App& app) -> action {
            auto x = std::make_shared<rm_arguments>();
            x->run = add_run_arguments(app);
            app.add_flag("-y,--yes", x->yes, "do not ask");
            app.add_flag("--gone", x->gone,
                         "the driver, which was on another host or before a\n"
                         "reboot, has ended");
            app.footer(
              "Asks on a terminal. A file that Troupe does not know, a "
              "checkpoint with files\nof yours in it, and what trackers keep "
              "elsewhere stay, and are named.\nExit code 1 if it was not "
              "removed completely.");
            return [x] { return rm(*x); };
          }};
}

} // namespace troupe::tool

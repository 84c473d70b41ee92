#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/troupe/runs.hpp"
#include "tools/troupe/storage.hpp"
#include "tools/troupe/sweeps.hpp"
#include "tools/troupe/verbs.hpp"
#include "troupe/callbacks/csv/csv.hpp"
#include "troupe/runtime/checkpoint/manifest.hpp"
#include "troupe/runtime/counted.hpp"
#include "troupe/runtime/rank_logs.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/storage/file_copy.hpp"
#include "troupe/runtime/store/run_folder.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/runtime/whole_number.hpp"

// troupe rm: removes a run, or a sweep with its trials, and nothing that is not
// Troupe's.

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

bool is_own_file_of_run(std::string_view name) {
  return run_layout::kind_of(name) == run_layout::entry_kind::file
         || run_layout::plain_name(name) == csv_options{}.file;
}

/// The log of a rank, its stacks, or the file that an agent tries the storage
/// with.
bool is_log(std::string_view name) {
  auto plain = run_layout::plain_name(name);
  return rank_of_log(plain) || rank_of_stacks(plain)
         || (plain == agent_trial && plain != name);
}

/// Removes what belongs to the run, and notes what stays.
class remover {
public:
  remover(const held_folder& run, const found_run& found)
    : run_(run), found_(found) {}

  expected<void> remove_all() {
    using namespace run_layout;
    TROUPE_TRY_VOID(remove_in(
      checkpoints, [this](const held_folder& folder, std::string& name) {
        return is_own_checkpoint(folder, name);
      }));
    TROUPE_TRY_VOID(remove_in(logs, [](auto&, const std::string& name) {
      return expected<bool>{is_log(name)};
    }));
    TROUPE_TRY_VOID(remove_in(tensorboard, [](auto&, const std::string& name) {
      return expected<bool>{is_event_file(name) || is_former_event_file(name)
                            || name == unfinished_params};
    }));
    for (auto& x : entries)
      if (x.kind == entry_kind::tree)
        TROUPE_TRY_VOID(run_.remove_tree(std::string{x.name}));
    TROUPE_TRY(auto names, run_.names());
    for (auto& name : names)
      if (is_own_file_of_run(name) || is_unfinished_copy(run_.path() / name))
        TROUPE_TRY_VOID(run_.remove_file(name));
    // Until here the folder is a run's: an interrupted removal can be repeated.
    for (std::string name : {state, description, ranks})
      TROUPE_TRY_VOID(run_.remove_file(name + ".new"));
    for (auto name : {state, description, ranks})
      TROUPE_TRY_VOID(run_.remove_file(name));
    TROUPE_TRY_VOID(remove_attempts());
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
    if (!found.is_folder()) { // A link of the user's, to a folder for all runs.
      left_.push_back(name);
      return {};
    }
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

  /// Beside files of others, a folder is that of a run again only with the
  /// number of an attempt in it (`refuse_foreign`), so that one stays.
  expected<void> remove_attempts() {
    using namespace run_layout;
    constexpr const char* mark = "0";
    TROUPE_TRY(auto beside, run_.names());
    auto keeps = std::ranges::any_of(beside, [](const std::string& name) {
      return name != attempts && name != lock && !name.starts_with(".nfs");
    });
    TROUPE_TRY(auto folder, run_.folder(attempts));
    if (keeps) // It names no driver.
      TROUPE_TRY_VOID(
        folder.open_file(mark, O_WRONLY | O_CREAT | O_TRUNC, "create"));
    TROUPE_TRY(auto names, folder.names());
    for (auto& name : names)
      if (!is_digits(name)) {
        left_.push_back(std::string{attempts} + '/' + name);
        keeps = true;
      } else if (!keeps || name != mark) {
        TROUPE_TRY_VOID(folder.remove_file(name));
      }
    return keeps ? expected<void>{} : run_.remove_tree(attempts);
  }

  /// One that stays gets another name, *name*: the next run of this name must
  /// not resume from it, and may have one of its name.
  expected<bool> is_own_checkpoint(const held_folder& folder,
                                   std::string& name) {
    for (auto prefix : {run_layout::staging_prefix, run_layout::evicted_prefix,
                        run_layout::rotten_prefix})
      if (name.starts_with(prefix))
        return true;
    TROUPE_TRY(auto found, folder.look_up_link(name));
    auto its = read_manifest(folder, name);
    if (!its) { // Damaged, but known as one of the run's.
      auto is_it = [&](const kept_checkpoint& x) {
        return x.data.name() == name;
      };
      return found.is_folder() && found_.state
             && std::ranges::any_of(found_.state->checkpoints, is_it);
    }
    if (!its->name.empty() && its->name != name)
      return false; // A copy is the user's, and no run takes it for its own.
    if (found.is_folder() && is_of_run(name, *its)) {
      // What cannot be listed could not be removed either.
      auto users = unlisted_files(folder.path() / name, *its);
      if (users && users->empty())
        return true;
    }
    return move_aside(folder, name).map([] { return false; });
  }

  /// Whether the run made the checkpoint *name*. The id is not known if
  /// `run.json` is lost; the state names its checkpoints all the same.
  bool is_of_run(const std::string& name, const manifest& its) const {
    auto& run = found_.description;
    if (its.run_id.empty()
        || (run
            && (its.run_id == run->id
                || std::ranges::count(run->former_ids, its.run_id) > 0)))
      return true;
    if (!found_.state)
      return false;
    doomed_checkpoint it{name, its.index, its.attempt};
    auto is_it = [&](const kept_checkpoint& x) {
      return it == doomed_checkpoint{x.data.name(), x.index, x.attempt};
    };
    return std::ranges::count(found_.state->doomed, it) > 0
           || std::ranges::any_of(found_.state->checkpoints, is_it);
  }

  static expected<void> move_aside(const held_folder& folder,
                                   std::string& name) {
    auto kept = "kept-" + name;
    for (auto i = 2; i < 100; ++i) {
      auto moved = folder.rename_new(name, folder, kept);
      if (moved)
        name = kept;
      if (moved || moved.error().code != ec::conflict)
        return moved;
      kept = concat("kept-", i, '-', name);
    }
    return failure(ec::conflict, "too many checkpoints called '" + name
                                   + "' were kept in "
                                   + folder.path().string());
  }

  const held_folder& run_;
  const found_run& found_;
  std::vector<std::string> left_;
};

/// Asks whether to remove the run or sweep *name*, of which *what* says more,
/// in the folder *path*. Says so if not.
expected<bool> user_agrees(const std::string& name, const std::string& what,
                           const fs::path& path) {
  if (::isatty(STDIN_FILENO) != 1)
    return failure(ec::invalid_argument,
                   "there is no terminal to ask: --yes removes " + name);
  std::fprintf(stderr, "Remove %s (%s) in %s? [y/N] ", one_line(name).c_str(),
               what.c_str(), one_line(path.string()).c_str());
  std::string answer;
  if (!std::getline(std::cin, answer))
    std::fputc('\n', stderr); // The question's line is not over.
  auto agrees = answer == "y" || answer == "Y" || answer == "yes";
  if (!agrees)
    complain("nothing was removed");
  return agrees;
}

/// Refuses *what*, a run or a sweep, if it has a driver, or may have one.
expected<void> refuse_live(const std::string& what, driver_presence presence,
                           const process_identity* driver, bool gone) {
  if (!driver || presence == driver_presence::gone
      || (presence == driver_presence::elsewhere && gone))
    return {};
  return failure(ec::conflict,
                 what + " has a driver, " + to_string(*driver)
                   + (presence == driver_presence::live
                        ? ": stop it first"
                        : ", which cannot be seen from here: --gone says that "
                          "it has ended"));
}

expected<void> refuse_live(const found_run& x, bool gone) {
  return refuse_live("the run " + x.path.string(), x.presence,
                     x.driver ? &*x.driver : nullptr, gone);
}

std::string text_of_left(const fs::path& path) {
  auto found = look_up_link(path);
  if (!found || !found->is_folder())
    return path.string() + ", which is not Troupe's";
  auto its = read_manifest(path);
  auto users =
    its.and_then([&](const manifest& x) { return unlisted_files(path, x); });
  if (!users || !users->empty())
    return path.string() + ", which has files that are not Troupe's";
  return path.string()
         + ", a copy of a checkpoint, or one that is not known as this run's";
}

/// Refuses *path*, a run or a sweep, before anything of it is removed, if it
/// could not be removed itself, or its user has protected its content.
expected<void> expect_removable(const fs::path& path) {
  for (auto& folder :
       {path.parent_path(), path, path / run_layout::checkpoints})
    if (::faccessat(AT_FDCWD, folder.c_str(), W_OK | X_OK, AT_EACCESS) != 0
        && errno != ENOENT) // A sweep has no checkpoints.
      return tl::unexpected{storage_error("remove", path, errno)};
  return {};
}

/// Waits for ranks of the run *x*, which write on: a driver that was killed may
/// have left some. Those on other hosts are given up as by a start, because a
/// host that is lost may never let go of its lock.
expected<void> await_ranks(run_folder& held, const found_run& x) {
  std::chrono::milliseconds lost_after{x.state ? x.state->lost_after_ms : 0};
  if (lost_after.count() <= 0)
    return held.await_ranks(ranks_limit);
  auto patience = patience_of_agents(lost_after);
  auto has_said = false;
  return held.await_ranks(
    2 * patience, [] { return false; },
    [](const store_event& event) {
      if (event.kind == "ranks_abandoned")
        complain(to_string(event));
      return expected<void>{};
    },
    [&](std::chrono::milliseconds waited) -> std::string {
      if (!std::exchange(has_said, true))
        complain(concat("waits up to ", duration_text(patience),
                        " for ranks of the run on other hosts"));
      return waited >= patience ? hosts_of_earlier_driver : "";
    });
}

/// Removes the run *x*, which has no driver; returns what stays.
expected<std::vector<std::string>> remove_run(const found_run& x) {
  // Refuses a folder of another user, and whoever has started it meanwhile.
  TROUPE_TRY(auto held, run_folder::open(x.path.parent_path(),
                                         x.path.filename().string()));
  TROUPE_TRY_VOID(await_ranks(*held, x));
  remover all{held->files(), x};
  TROUPE_TRY_VOID(all.remove_all());
  held.reset();
  if (all.left().empty() && ::rmdir(x.path.c_str()) != 0)
    return tl::unexpected{storage_error("remove", x.path, errno)};
  return all.left();
}

expected<int> tell(const rm_arguments& x, const fs::path& path,
                   const std::vector<std::string>& left) {
  if (x.run->json) {
    print_json({{"path", utf8_text(path.string())},
                {"removed", left.empty()},
                {"left", left}});
  } else {
    print("removed " + one_line(path.string())
          + (left.empty() ? "\n" : ", but for:\n"));
    for (auto& name : left)
      complain(text_of_left(path / name));
  }
  return left.empty() ? done : failed;
}

expected<int> rm_run(const rm_arguments& x, const fs::path& path) {
  TROUPE_TRY_VOID(expect_own_run(path));
  auto run = read_run(path);
  TROUPE_TRY_VOID(refuse_live(run, x.gone));
  TROUPE_TRY_VOID(expect_removable(run.path));
  if (!x.yes) {
    auto what = concat(
      run.state_name(), ", ", counted(run.reports, "report"), ", ",
      counted(run.state ? run.state->checkpoints.size() : 0, "checkpoint"));
    TROUPE_TRY(auto agreed, user_agrees(run.name, what, run.path));
    if (!agreed)
      return failed;
  }
  TROUPE_TRY(auto left, remove_run(run));
  return tell(x, path, left);
}

// -- sweeps

/// Whether the folder *path* of a trial is a run's, or one in which a driver
/// was killed before it described its run.
expected<bool> is_own_trial(const fs::path& path) {
  if (expect_own_run(path))
    return true;
  TROUPE_TRY(auto of_another, is_run(path));
  if (of_another)
    return false;
  auto refused = held_folder::open(path).and_then(refuse_foreign);
  if (!refused && refused.error().code != ec::conflict)
    return tl::unexpected{refused.error()};
  return refused.has_value();
}

/// The runs of trials in the folder of a sweep; `ec::conflict` if one has a
/// driver.
expected<std::vector<found_run>> trials_in(const held_folder& sweep,
                                           bool gone) {
  std::vector<found_run> result;
  TROUPE_TRY(auto names, sweep.names());
  for (auto& name : names) {
    if (!is_trial_name(name))
      continue;
    TROUPE_TRY(auto there, sweep.look_up_link(name));
    if (!there.is_folder())
      continue;
    TROUPE_TRY(auto own, is_own_trial(sweep.path() / name));
    if (!own)
      continue;
    result.push_back(read_run(sweep.path() / name));
    TROUPE_TRY_VOID(refuse_live(result.back(), gone));
  }
  return result;
}

expected<int> rm_sweep(const rm_arguments& x, const fs::path& path) {
  // Another program's, or damaged: it stays.
  TROUPE_TRY_VOID(read_sweep_description(path));
  auto sweep = read_sweep_at(path);
  auto start = sweep.content && sweep.content->history.start
                 ? &sweep.content->history.start->driver
                 : nullptr;
  TROUPE_TRY_VOID(
    refuse_live("the sweep " + path.string(), sweep.presence, start, x.gone));
  TROUPE_TRY_VOID(expect_removable(path));
  TROUPE_TRY(auto folder, held_folder::open(path));
  TROUPE_TRY(auto trials, trials_in(folder, x.gone));
  for (auto& trial : trials)
    TROUPE_TRY_VOID(expect_removable(trial.path));
  if (!x.yes) {
    auto what =
      concat(sweep.state_name(), ", ", counted(trials.size(), "trial"));
    TROUPE_TRY(auto agreed, user_agrees(sweep.name, what, path));
    if (!agreed)
      return failed;
  }
  TROUPE_TRY(auto lock, lock_sweep(folder));
  std::vector<std::string> left;
  for (auto& trial : trials) {
    TROUPE_TRY(auto files, remove_run(trial));
    for (auto& name : files)
      left.push_back(trial.path.filename().string() + '/' + name);
  }
  TROUPE_TRY(auto others, remove_sweep_files(folder));
  for (auto& name : others)
    if (std::ranges::find(trials, folder.path() / name, &found_run::path)
        == trials.end())
      left.push_back(name);
  if (left.empty() && ::rmdir(path.c_str()) != 0)
    return tl::unexpected{storage_error("remove", path, errno)};
  return tell(x, path, left);
}

expected<int> rm(const rm_arguments& x) {
  TROUPE_TRY(auto found, x.run->run_or_sweep());
  return found.is_sweep ? rm_sweep(x, found.path) : rm_run(x, found.path);
}

} // namespace

verb rm_verb() {
  return {"rm",
          "Removes a run that has no driver, or a sweep with its trials, and "
          "nothing that is\nnot Troupe's.",
          [](CLI::App& app) -> action {
            auto x = std::make_shared<rm_arguments>();
            x->run = add_run_arguments(app);
            app.add_flag("-y,--yes", x->yes, "do not ask");
            app.add_flag("--gone", x->gone,
                         "the driver, which was on another host or before a\n"
                         "reboot, has ended");
            app.footer(
              "Asks on a terminal. A file that Troupe does not know, and a "
              "checkpoint with\nfiles of yours in it, stay and are named. What "
              "trackers keep elsewhere stays,\ntoo, and is not named.\n"
              "Exit code 1 if it was not removed completely.");
            return [x] { return rm(*x); };
          }};
}

} // namespace troupe::tool

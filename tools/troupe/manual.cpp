#include "tools/troupe/manual.hpp"

#include <sstream>
#include <string_view>

namespace troupe::tool {

namespace {

std::vector<const CLI::Option*> options_of(const CLI::App& app) {
  std::vector<const CLI::Option*> result;
  for (auto x : app.get_options())
    result.push_back(x);
  return result;
}

std::vector<const CLI::App*> verbs_of(const CLI::App& app) {
  auto result = app.get_subcommands([](const CLI::App*) { return true; });
  return {result.begin(), result.end()};
}

/// What a line of a man page must not begin with, or contain.
std::string roff(std::string_view text) {
  std::string result;
  auto at_begin = true;
  for (auto c : text) {
    if (at_begin && (c == '.' || c == '\''))
      result += "\\&";
    at_begin = c == '\n';
    if (c == '\\')
      result += "\\e";
    else if (c == '-')
      result += "\\-";
    else
      result += c;
  }
  return result;
}

std::string paragraphs(const std::string& text) {
  std::string result;
  std::istringstream lines{text};
  for (std::string line; std::getline(lines, line);)
    result += line.empty() ? ".PP\n" : roff(line) + '\n';
  return result;
}

std::string value_of(const CLI::Option& x) {
  auto text = x.get_option_text();
  return text == " " ? "" : text;
}

std::string manual_of(const CLI::App& app) {
  std::string out = ".TH TROUPE 1 \"\" \"Troupe " + std::string{TROUPE_VERSION}
                    + "\" \"User Commands\"\n.SH NAME\ntroupe \\- "
                    + roff(app.get_description()) + "\n.SH SYNOPSIS\n";
  out += ".B troupe\nVERB [OPTIONS] [ARGUMENTS]\n.SH VERBS\n";
  for (auto part : verbs_of(app)) {
    out += ".SS troupe " + roff(part->get_name());
    for (auto x : options_of(*part))
      if (x->get_positional())
        out += x->get_required() ? ' ' + roff(x->get_name())
                                 : " [" + roff(x->get_name()) + ']';
    out += '\n' + paragraphs(part->get_description());
    for (auto x : options_of(*part)) {
      out += ".TP\n.B " + roff(x->get_name(false, true));
      if (auto value = value_of(*x); !value.empty())
        out += " " + roff(value);
      out += '\n' + roff(x->get_description()) + '\n';
    }
    if (!part->get_footer().empty())
      out += ".PP\n" + paragraphs(part->get_footer());
  }
  return out + ".SH NOTES\n" + paragraphs(app.get_footer());
}

std::string completion_of(const CLI::App& app) {
  std::string verbs, cases;
  for (auto part : verbs_of(app)) {
    verbs += (verbs.empty() ? "" : " ") + part->get_name();
    std::string words;
    auto takes_runs = false;
    for (auto x : options_of(*part)) {
      takes_runs =
        takes_runs || (x->get_positional() && x->get_name() == "RUN");
      for (auto& name : x->get_lnames())
        words += (words.empty() ? "--" : " --") + name;
    }
    cases += "    " + part->get_name() + ") words='" + words
             + "'; runs=" + (takes_runs ? "yes" : "") + " ;;\n";
  }
  return R"bash(# Completion of troupe for bash; made by `troupe completion bash`.
_troupe() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}
  local words= runs= storage=() i
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    mapfile -t COMPREPLY < <(compgen -W ')bash"
         + verbs + R"bash(' -- "$word")
    return
  fi
  case ${COMP_WORDS[1]} in
)bash" + cases
         + R"bash(    *) return ;;
  esac
  case $before in
    -s | --storage | -o | --output) compopt -o default; return ;;
  esac
  if [[ $word == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
    return
  fi
  for ((i = 2; i + 1 < COMP_CWORD; ++i)); do
    case ${COMP_WORDS[i]} in
      -s | --storage) storage=("${COMP_WORDS[i+1]/#\~\//$HOME/}") ;;
    esac
  done
  if [[ $runs && $word != */* ]]; then
    local IFS=$'\n' name
    while read -r name; do
      [[ $name == "$word"* ]] && COMPREPLY+=("$(printf %q "$name")")
    done < <(troupe ls --names "${storage[@]}" 2>/dev/null)
  fi
  ((${#COMPREPLY[@]})) || compopt -o default
}
complete -F _troupe troupe
)bash";
}

} // namespace

void add_manual(CLI::App& app, action& todo) {
  auto man = app.add_subcommand("man", "Prints the man page.");
  man->callback([&app, &todo] {
    todo = [&app] {
      print(manual_of(app));
      return expected<int>{done};
    };
  });
  auto completion =
    app.add_subcommand("completion", "Prints the completion for a shell.");
  completion->add_option("SHELL", "bash")
    ->option_text(" ")
    ->required()
    ->check(CLI::IsMember({"bash"}));
  completion->callback([&app, &todo] {
    todo = [&app] {
      print(completion_of(app));
      return expected<int>{done};
    };
  });
}

std::vector<verb> all_verbs() {
  return {
    ls_verb(),     show_verb(), tail_verb(), plot_verb(),   compare_verb(),
    verify_verb(), stop_verb(), rm_verb(),   report_verb(), serve_verb(),
#ifdef TROUPE_WITH_TRACKERS
    sync_verb(),
#endif
  };
}

} // namespace troupe::tool

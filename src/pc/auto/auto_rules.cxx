/* Reads the rules of PCAUTO, and takes the first choice that fits. */
#include <finepc.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <sstream>

#include "options.h"
#include "auto.h"

static const char kRules[] =
#include "auto_rules.txt"
  ;

/* A system of fewer rows and entries is small: what a set-up costs counts for more than the iterations. */
static constexpr PetscInt64 kSmall = 100000, kSmallEntries = 3000000;
/* From this share of entries beside the diagonal on that are at most 0, a matrix without blocks counts as one of an elliptic
 * problem. */
static constexpr double kElliptic = 0.6;

/* Set-ups cost what the rules say where rows have so many entries. */
static constexpr double kUsualRow = 7;

/* Rows are uneven if the longest one is so many times the mean. */
static constexpr double kUneven = 20;

struct Word {
  const char *word;
  bool (*holds)(const AUTOProperties &, bool free);
};

static bool IsOfBlocks(const AUTOProperties &p)
{
  return p.block_size > 1 || p.modes > 1;
}

bool AUTOIsElliptic(const AUTOProperties &p)
{
  return p.rows_known && !IsOfBlocks(p) && (p.stencil || (double)p.not_positive >= kElliptic * (double)p.beside);
}

/* The same words, with the same meaning, are in finepc_try/rules.py. */
static const Word kWords[] = {
  {"rows", [](const AUTOProperties &p, bool) { return p.rows_known; }},
  {"symmetric", [](const AUTOProperties &p, bool) { return p.symmetric; }},
  {"definite", [](const AUTOProperties &p, bool) { return p.definite && !p.indefinite; }},
  {"positive", [](const AUTOProperties &p,
                  bool) { return !p.negative_diagonal && !p.one_sided && !p.no_blocks; }}, /* icc may not return else */
  {"elliptic", [](const AUTOProperties &p, bool) { return AUTOIsElliptic(p); }},
  {"dominated", [](const AUTOProperties &p, bool) { return p.looked_at > 0 && p.dominated == p.looked_at; }},
  {"stencil", [](const AUTOProperties &p, bool) { return p.stencil > 0; }},
  {"anisotropic", [](const AUTOProperties &p, bool) { return p.anisotropic; }},
  {"modes", [](const AUTOProperties &p, bool) { return p.modes > 1; }},
  {"blocks", [](const AUTOProperties &p, bool) { return IsOfBlocks(p); }},
  {"uneven", [](const AUTOProperties &p,
                bool) { return (double)p.longest_row * (double)p.rows > kUneven * (double)p.entries && p.entries > 0; }},
  {"sound", /* gamg loses memory where there are no rows */
   [](const AUTOProperties &p, bool) { return p.rows_known && p.rows > 0 && !p.not_usual && !p.zero_diagonal; }},
  {"small", [](const AUTOProperties &p, bool) { return p.rows < kSmall && p.entries < kSmallEntries; }},
  {"device", [](const AUTOProperties &p, bool) { return p.on_device; }},
  {"one_rank", [](const AUTOProperties &p, bool) { return p.one_rank; }},
  {"free", [](const AUTOProperties &, bool free) { return free; }},
};

unsigned AUTOWords(const AUTOProperties &properties, bool free)
{
  unsigned words = 0;

  for (size_t k = 0; k < std::size(kWords); k++)
    if (kWords[k].holds(properties, free)) words |= 1u << k;
  return words;
}

static bool Holds_AUTO(unsigned needs, unsigned excludes, unsigned words)
{
  return (words & needs) == needs && !(words & excludes);
}

bool AUTOHolds(const AUTOCandidate &candidate, unsigned words)
{
  return Holds_AUTO(candidate.needs, candidate.excludes, words);
}

double AUTOSetUpFor(const AUTOCandidate &candidate, double entries_a_row)
{
  return candidate.set_up * std::pow(PetscMax(entries_a_row, 1) / kUsualRow, candidate.growth);
}

/* Text to be read. A stream that finds no memory says so. */
class Text : public std::istringstream {
public:
  explicit Text(const std::string &text) : std::istringstream(text) { exceptions(std::ios::badbit); }
};

/* The fields of a line, without the blanks around them. */
static std::vector<std::string> FieldsOf(const std::string &line)
{
  std::vector<std::string> fields;
  Text                     in(line);

  for (std::string field; std::getline(in, field, '|');) {
    const size_t first = field.find_first_not_of(' '), last = field.find_last_not_of(' ');
    fields.push_back(first == std::string::npos ? "" : field.substr(first, last - first + 1));
  }
  return fields;
}

static std::vector<std::string> WordsOf(const std::string &text)
{
  std::vector<std::string> words;
  Text                     in(text);

  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

static PetscErrorCode ReadWords(const std::string &text, unsigned *needs, unsigned *excludes)
{
  PetscFunctionBegin;
  *needs = *excludes = 0;
  for (const std::string &word : WordsOf(text)) {
    const bool  no = word[0] == '!';
    const Word *found =
      std::find_if(std::begin(kWords), std::end(kWords), [&](const Word &known) { return word.substr(no) == known.word; });

    PetscCheck(found != std::end(kWords), PETSC_COMM_SELF, PETSC_ERR_PLIB, "auto_rules.txt has the word %s, which is none",
               word.c_str());
    (no ? *excludes : *needs) |= 1u << (found - kWords);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode ReadCandidate(const std::vector<std::string> &fields, std::vector<AUTOCandidate> *all)
{
  AUTOCandidate candidate;

  PetscFunctionBegin;
  PetscCheck(fields.size() == 8, PETSC_COMM_SELF, PETSC_ERR_PLIB, "A candidate of auto_rules.txt has not 8 fields");
  candidate.name    = fields[1];
  candidate.options = fields[2];
  PetscCall(ReadWords(fields[3], &candidate.needs, &candidate.excludes));
  candidate.iteration = std::strtod(fields[4].c_str(), nullptr);
  candidate.set_up    = std::strtod(fields[5].c_str(), nullptr);
  candidate.growth    = std::strtod(fields[6].c_str(), nullptr);
  candidate.limit     = (PetscInt)std::strtol(fields[7].c_str(), nullptr, 10);
  all->push_back(candidate);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Appends the candidates that the words allow, each once. Those behind a stroke are there to fall back to. */
static PetscErrorCode Append_AUTO(const std::string &names, unsigned words, const std::vector<AUTOCandidate> &all,
                                  AUTOChoice *choice)
{
  bool fallback = false;

  PetscFunctionBegin;
  for (const std::string &name : WordsOf(names)) {
    fallback = fallback || name == "/";
    if (name == "/") continue;
    const auto is    = [&](const AUTOCandidate &candidate) { return candidate.name == name; };
    const auto found = std::find_if(all.begin(), all.end(), [&](const AUTOCandidate &c) { return is(c) && AUTOHolds(c, words); });

    PetscCheck(std::any_of(all.begin(), all.end(), is), PETSC_COMM_SELF, PETSC_ERR_PLIB, "auto_rules.txt has no candidate %s",
               name.c_str());
    if (found == all.end()) continue;
    if (std::any_of(choice->candidates.begin(), choice->candidates.end(), is)) continue;
    choice->candidates.push_back(*found);
    choice->candidates.back().fallback = fallback;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A line of choices. */
struct Choice {
  unsigned    needs, excludes;
  std::string names, why, measured;
};

struct Rules {
  std::vector<AUTOCandidate> candidates;
  std::vector<Choice>        choices;
};

static PetscErrorCode ReadRules(Rules *rules)
{
  Text in(kRules);

  PetscFunctionBegin;
  for (std::string line; std::getline(in, line);) {
    const std::vector<std::string> fields = FieldsOf(line);
    unsigned                       needs, excludes;

    if (fields.empty() || line[0] == '#') continue;
    if (fields[0] == "candidate") PetscCall(ReadCandidate(fields, &rules->candidates));
    if (fields[0] != "choice") continue;
    PetscCheck(fields.size() == 5, PETSC_COMM_SELF, PETSC_ERR_PLIB, "A choice of auto_rules.txt has not 5 fields");
    PetscCall(ReadWords(fields[1], &needs, &excludes));
    rules->choices.push_back(Choice{needs, excludes, fields[2], fields[3], fields[4]});
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Reads them once: on a GPU that would take as long as some iterations. */
static PetscErrorCode GetRules(const Rules **rules)
{
  static Rules kept;

  PetscFunctionBegin;
  if (kept.choices.empty()) {
    Rules read;

    PetscCall(ReadRules(&read));
    kept = std::move(read);
  }
  *rules = &kept;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode AUTOChoose(unsigned words, AUTOChoice *choice)
{
  const Rules *rules = nullptr;

  PetscFunctionBegin;
  *choice = AUTOChoice{};
  PetscCall(GetRules(&rules));
  const auto holds = [&](const Choice &line) { return Holds_AUTO(line.needs, line.excludes, words); };
  const auto found = std::find_if(rules->choices.begin(), rules->choices.end(), holds);
  if (found != rules->choices.end()) {
    choice->why      = found->why;
    choice->measured = found->measured;
    PetscCall(Append_AUTO(found->names, words, rules->candidates, choice));
  }
  PetscCall(Append_AUTO("/ jacobi none", words, rules->candidates, choice));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  The results as a Markdown table (to the screen, row by row, and to a file) and as JSON. Only rank 0 writes.
*/
#include "bench.h"
#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <ctime>

/* ------------------------------------------- what is derived from the measurements ------------------------------------------- */

const Timing *ResultBest(const Result &result)
{
  const Timing *best = nullptr;

  if (result.runs.size() == 1) return &result.runs[0];
  for (size_t k = 1; k < result.runs.size(); k++) {
    if (!best || result.runs[k].setup + result.runs[k].solve < best->setup + best->solve) best = &result.runs[k];
  }
  return best;
}

PetscLogDouble ResultMinimum(const std::vector<PetscLogDouble> &v)
{
  return v.empty() ? 0. : *std::min_element(v.begin(), v.end());
}

PetscLogDouble FloorFraction(const Backend &backend, PetscLogDouble bytes, PetscLogDouble seconds)
{
  return bytes > 0. && seconds > 0. && backend.copy_gbs > 0. ? bytes / (backend.copy_gbs * 1e9) / seconds : 0.;
}

static PetscLogDouble PerIteration(const Timing &timing)
{
  return timing.iterations > 0 ? timing.solve / (PetscLogDouble)timing.iterations : 0.;
}

static std::string Now()
{
  const std::time_t now = std::time(nullptr);
  char              text[64];

  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  return text;
}

static std::string PetscVersionText()
{
  return std::to_string(PETSC_VERSION_MAJOR) + "." + std::to_string(PETSC_VERSION_MINOR) + "." + std::to_string(PETSC_VERSION_SUBMINOR);
}

static std::string Format(const char *format, ...)
{
  char         text[2048];
  std::va_list args;

  va_start(args, format);
  std::vsnprintf(text, sizeof(text), format, args);
  va_end(args);
  return text;
}

/* ------------------------------------------- Markdown ------------------------------------------- */

struct Column {
  const char *title;
  int         width; /* minus: to the left */
};

static const std::vector<Column> kColumns = {
  {"system",         -20},
  {"set",            -16},
  {"rows",           8  },
  {"nnz",            9  },
  {"first set-up ms", 15},
  {"set-up ms",      9  },
  {"refill ms",      9  },
  {"solve ms",       9  },
  {"total ms",       9  },
  {"its",            6  },
  {"us/it",          8  },
  {"it floor %",     10 },
  {"density",        7  },
  {"apply us",       8  },
  {"apply MB",       8  },
  {"apply floor %",  13 },
  {"true res",       8  },
  {"status",         -8 },
  {"note",           -4 },
};

static std::string MarkdownHeader()
{
  std::string titles = "|", rule = "|";

  for (const auto &column : kColumns) {
    titles += Format(" %*s |", column.width, column.title);
    rule += column.width < 0 ? ":" + std::string((size_t)(1 - column.width), '-') + "|" : std::string((size_t)(column.width + 1), '-') + ":|";
  }
  return titles + "\n" + rule + "\n";
}

/* A number, or nothing where it was not measured */
static std::string Cell(const char *format, PetscLogDouble value, bool known)
{
  return known ? Format(format, value) : "";
}

static std::string MarkdownRow(const Config &config, const System &system, const Result &result)
{
  const Timing        *best  = ResultBest(result);
  const PetscLogDouble apply = result.apply_seconds, per_iteration = best ? PerIteration(*best) : 0.;
  const PetscLogDouble apply_floor = FloorFraction(config.backend, result.apply_bytes, apply), iteration_floor = FloorFraction(config.backend, result.iteration_bytes, per_iteration);
  std::string          row = "|", note = result.note;

  std::replace(note.begin(), note.end(), '|', '/'); /* a bar would end the cell */
  const std::vector<std::string> cells = {
    system.name,
    result.set.label,
    Format("%.0f", (double)system.rows),
    Format("%.0f", (double)system.nnz),
    Cell("%.2f", result.runs.empty() ? 0. : 1e3 * result.runs[0].setup, !result.runs.empty()),
    Cell("%.2f", best ? 1e3 * best->setup : 0., best),
    Cell("%.2f", 1e3 * ResultMinimum(result.refill), !result.refill.empty()),
    Cell("%.2f", best ? 1e3 * best->solve : 0., best),
    Cell("%.2f", best ? 1e3 * (best->setup + best->solve) : 0., best),
    Cell("%.0f", best ? (double)best->iterations : 0., best),
    Cell("%.1f", 1e6 * per_iteration, per_iteration > 0.),
    Cell("%.0f", 100. * iteration_floor, iteration_floor > 0.),
    Cell("%.2f", result.density, result.density > 0.),
    Cell("%.1f", 1e6 * apply, apply > 0.),
    Cell("%.1f", 1e-6 * result.apply_bytes, result.apply_bytes > 0. && apply > 0.),
    Cell("%.0f", 100. * apply_floor, apply_floor > 0.),
    Cell("%.1e", best ? best->true_residual : 0., best),
    result.status,
    note,
  };
  for (size_t k = 0; k < cells.size(); k++) row += Format(" %*s |", kColumns[k].width, cells[k].c_str());
  return row + "\n";
}

static std::string MarkdownPreamble(const Config &config)
{
  PetscMPIInt size = 1;

  (void)MPI_Comm_size(PETSC_COMM_WORLD, &size);
  std::string text = Format("finepc_bench: backend %s, %s", config.backend.cuda ? "cuda" : "host", config.backend.device.c_str());
  if (!config.backend.driver.empty()) text += ", driver " + config.backend.driver;
  text += Format(", %d %s, copy %.0f GB/s, PETSc %s, commit %s, %s.\n", (int)size, size == 1 ? "rank" : "ranks", config.backend.copy_gbs, PetscVersionText().c_str(), config.commit.c_str(), Now().c_str());
  text += Format("b = A 1, x0 = 0, true residual %g; ", (double)config.true_rtol);
  text += config.repeats ? Format("the best of %d warm runs, the first use apart.\n\n", (int)config.repeats) : "the first use alone.\n\n";
  return text;
}

PetscErrorCode ReportHeader(const Config &config)
{
  PetscFunctionBeginUser;
  PetscCall(PetscPrintf(PETSC_COMM_WORLD, "%s%s", MarkdownPreamble(config).c_str(), MarkdownHeader().c_str()));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode ReportRow(const Config &config, const System &system, const Result &result)
{
  PetscFunctionBeginUser;
  PetscCall(PetscPrintf(PETSC_COMM_WORLD, "%s", MarkdownRow(config, system, result).c_str()));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------- JSON ------------------------------------------- */

/* Appends JSON to a string; the commas take care of themselves */
class JsonWriter {
public:
  std::string text;

  void Open(const char *key, char bracket)
  {
    Key(key);
    text += bracket;
    depth++;
  }

  void Close(char bracket)
  {
    depth--;
    if (text.back() != '{' && text.back() != '[') NewLine();
    text += bracket;
  }

  void String(const char *key, const std::string &value)
  {
    Key(key);
    text += '"';
    for (const char c : value) {
      if (c == '"' || c == '\\') text += '\\';
      if ((unsigned char)c < ' ') text += Format("\\u%04x", (unsigned)c);
      else text += c;
    }
    text += '"';
  }

  void Number(const char *key, double value)
  {
    Key(key);
    text += std::isfinite(value) ? Format("%.9g", value) : "null";
  }

  void Integer(const char *key, double value)
  {
    Key(key);
    text += Format("%.0f", value);
  }

  void Bool(const char *key, bool value)
  {
    Key(key);
    text += value ? "true" : "false";
  }

  void Numbers(const char *key, const std::vector<double> &values)
  {
    Key(key);
    text += '[';
    for (size_t k = 0; k < values.size(); k++) text += (k ? ", " : "") + (std::isfinite(values[k]) ? Format("%.6g", values[k]) : std::string("null"));
    text += ']';
  }

private:
  int depth = 0;

  void NewLine() { text += "\n" + std::string((size_t)(2 * depth), ' '); }

  void Key(const char *key)
  {
    if (text.empty()) return;
    if (text.back() != '{' && text.back() != '[') text += ',';
    NewLine();
    if (key) text += std::string("\"") + key + "\": ";
  }
};

static void JsonTiming(JsonWriter *json, const char *key, const Timing &timing)
{
  json->Open(key, '{');
  json->Number("setup_s", timing.setup);
  json->Number("solve_s", timing.solve);
  json->Integer("iterations", (double)timing.iterations);
  json->Number("true_residual", timing.true_residual);
  json->String("reason", KSPConvergedReasons[timing.reason]);
  json->Close('}');
}

static void JsonResult(JsonWriter *json, const Config &config, const Result &result)
{
  const Timing *best = ResultBest(result);

  json->Open(nullptr, '{');
  json->String("label", result.set.label);
  json->String("options", result.set.options);
  json->String("status", result.status);
  json->String("note", result.note);
  json->String("ksp_type", result.ksp_type);
  json->String("pc_type", result.pc_type);
  json->Bool("first_in_process", result.first_in_process);
  if (!result.runs.empty()) JsonTiming(json, "first", result.runs[0]);
  json->Open("warm", '[');
  for (size_t k = 1; k < result.runs.size(); k++) JsonTiming(json, nullptr, result.runs[k]);
  json->Close(']');
  if (best) {
    json->Number("setup_s", best->setup);
    json->Number("solve_s", best->solve);
    json->Number("total_s", best->setup + best->solve);
    json->Integer("iterations", (double)best->iterations);
    json->Number("true_residual", best->true_residual);
    json->Number("iteration_s", PerIteration(*best));
    json->Number("iteration_bytes", result.iteration_bytes);
    json->Number("iteration_floor_fraction", FloorFraction(config.backend, result.iteration_bytes, PerIteration(*best)));
  }
  json->Numbers("refill_s", std::vector<double>(result.refill.begin(), result.refill.end()));
  json->Number("density", result.density);
  json->Number("apply_s", result.apply_seconds);
  json->Number("apply_bytes", result.apply_bytes);
  json->Number("apply_floor_fraction", FloorFraction(config.backend, result.apply_bytes, result.apply_seconds));
  json->Integer("history_stride", (double)result.history_stride);
  json->Numbers("history", std::vector<double>(result.history.begin(), result.history.end()));
  json->Close('}');
}

static std::string JsonReport(const Config &config, const std::vector<SystemResults> &all)
{
  JsonWriter  json;
  PetscMPIInt size = 1;

  (void)MPI_Comm_size(PETSC_COMM_WORLD, &size);
  json.Open(nullptr, '{');
  json.String("program", "finepc_bench");
  json.String("date", Now());
  json.String("commit", config.commit);
  json.String("petsc", PetscVersionText());
  json.String("backend", config.backend.cuda ? "cuda" : "host");
  json.String("device", config.backend.device);
  json.String("driver", config.backend.driver);
  json.Integer("ranks", size);
  json.Number("copy_GBps", config.backend.copy_gbs);
  json.Number("true_rtol", config.true_rtol);
  json.Integer("repeats", (double)config.repeats);
  json.Open("systems", '[');
  for (const auto &entry : all) {
    const System &system = entry.system;

    json.Open(nullptr, '{');
    json.String("name", system.name);
    json.String("kind", system.kind);
    json.Integer("rows", (double)system.rows);
    json.Integer("nnz", system.nnz);
    json.Number("load_s", system.load_seconds);
    json.Number("matmult_s", system.matmult_seconds);
    json.Number("matmult_bytes", system.matmult_bytes);
    json.Number("matmult_floor_fraction", FloorFraction(config.backend, system.matmult_bytes, system.matmult_seconds));
    json.Open("results", '[');
    for (const auto &result : entry.results) JsonResult(&json, config, result);
    json.Close(']');
    json.Close('}');
  }
  json.Close(']');
  json.Close('}');
  return json.text + "\n";
}

static PetscErrorCode WriteFile(const std::string &path, const std::string &text)
{
  PetscFunctionBeginUser;
  std::FILE *file = std::fopen(path.c_str(), "w");
  PetscCheck(file, PETSC_COMM_SELF, PETSC_ERR_FILE_OPEN, "Cannot write \"%s\"", path.c_str());
  const bool written = std::fputs(text.c_str(), file) >= 0;
  PetscCheck(!std::fclose(file) && written, PETSC_COMM_SELF, PETSC_ERR_FILE_WRITE, "Cannot write \"%s\"", path.c_str());
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode ReportFiles(const Config &config, const std::vector<SystemResults> &all)
{
  PetscMPIInt rank;

  PetscFunctionBeginUser;
  PetscCallMPI(MPI_Comm_rank(PETSC_COMM_WORLD, &rank));
  if (rank) PetscFunctionReturn(PETSC_SUCCESS);
  if (!config.json_file.empty()) PetscCall(WriteFile(config.json_file, JsonReport(config, all)));
  if (!config.md_file.empty()) {
    std::string text = MarkdownPreamble(config) + MarkdownHeader();

    for (const auto &entry : all) {
      for (const auto &result : entry.results) text += MarkdownRow(config, entry.system, result);
    }
    PetscCall(WriteFile(config.md_file, text));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

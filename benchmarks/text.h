#pragma once

/* Markdown tables and JSON, and what stands above every result: the machine, the versions, the commit. */

#include "bench.h"
#include <nlohmann/json_fwd.hpp>

extern std::string Format(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* a number, or an empty text where the number was not measured */
extern std::string    Cell(const char *format, PetscLogDouble value, bool known);
extern std::string    MachineText(const std::string &program, const Backend &backend, const Output &output);
extern PetscErrorCode WriteFile(const std::string &path, const std::string &text);

struct Column {
  const char *title;
  int         width; /* negative: the cells are aligned to the left */
};
extern std::string MarkdownHeader(const std::vector<Column> &columns);
extern std::string MarkdownCells(const std::vector<Column> &columns, const std::vector<std::string> &cells); /* a row */

using Json = nlohmann::ordered_json; /* its keys stay in the order in which they were added */

/* Numbers as results hold them, rounded to so many significant digits; those that are not finite become null in the file. */
extern double         Rounded(double value, int digits = 9);
extern Json           RoundedAll(const std::vector<double> &values, int digits = 6);
extern Json           MachineJson(const std::string &program, const Backend &backend, const Output &output);
extern PetscErrorCode WriteJson(const std::string &path, const Json &json);

"""Grading a class: sandboxed runs, records, reports and exports. For instructors."""
